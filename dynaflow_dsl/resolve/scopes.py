"""What the top of each file declares: groups, schedules and kernels, by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.resolve.findings import Names
from dynaflow_dsl.resolve.groups import Groups, check_group
from dynaflow_dsl.resolve.imports import Files, Imported, imported_by
from dynaflow_dsl.resolve.kernels import Kernels, Known, check_known, resolve_kernel
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import SyntaxTree
from dynaflow_dsl.syntax import model as syntax


@dataclass(frozen=True, slots=True)
class FileScope:
    """The names that stand at the top of one file, its imports among them.

    `schedules` and `kernels` are those whose declaration is known. `broken` are names
    about which something was said already.
    """

    tree: SyntaxTree
    imported: Imported
    groups: Groups
    schedules: Mapping[str, syntax.Schedule]
    kernels: Mapping[str, syntax.Kernel]
    broken: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Declared:
    """What a file declares and imports, before anything is looked up in it."""

    imported: Imported
    groups: Mapping[str, syntax.PartGroup]
    schedules: Mapping[str, syntax.Schedule]
    kernels: Mapping[str, syntax.Kernel]
    unread: frozenset[str]


@dataclass(slots=True)
class Scopes:
    """The scope of each file that something is taken from, made when it is needed."""

    files: Files
    found: list[Diagnostic]
    kernels: Kernels = field(init=False)
    _known: dict[Source, FileScope] = field(default_factory=dict)
    _declared: dict[Source, _Declared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kernels = Kernels(self._kernels_in, self.found)

    def of(self, source: Source) -> FileScope:
        """The scope of a file without errors in its text."""
        if source not in self._known:
            self._known[source] = self._scope(source)
        return self._known[source]

    def _scope(self, source: Source) -> FileScope:
        declared = self._names(source)
        broken = set(declared.unread)
        for name, group in declared.groups.items():
            mistakes = list(check_group(group))
            # The names of its file are enough: a scope would need that of the next
            # file, and chains of files may be long.
            known = self._kernels_in(group.span.source)
            mistakes += _unknown_kernels(group, *known)
            self.found += mistakes
            if mistakes:
                broken.add(name)
        sound = {n: group for n, group in declared.groups.items() if n not in broken}
        places = {name: each.name for name, each in declared.schedules.items()}
        return FileScope(
            self._tree(source),
            declared.imported,
            Groups(sound, frozenset(broken), places, frozenset(declared.unread)),
            declared.schedules,
            declared.kernels,
            declared.unread,
        )

    def _names(self, source: Source) -> _Declared:
        if source not in self._declared:
            tree = self._tree(source)
            self._declared[source] = _declared(tree, self.files, self.found)
        return self._declared[source]

    def _tree(self, source: Source) -> SyntaxTree:
        tree = self.files.trees[source]
        assert tree is not None
        return tree

    def _kernels_in(self, source: Source) -> Known:
        declared = self._names(source)
        return declared.kernels, declared.unread


def _unknown_kernels(
    group: syntax.PartGroup, known: Collection[str], broken: Collection[str]
) -> Iterator[Diagnostic]:
    for part in group.parts:
        if part.via is not None:
            yield from check_known(part.via.name, known, broken)


def _declared(tree: SyntaxTree, files: Files, found: list[Diagnostic]) -> _Declared:
    names = Names(found)
    imported = imported_by(tree, files, names, found)
    groups = dict(imported.groups)
    schedules = dict(imported.schedules)
    kernels = dict(imported.kernels)
    unread = imported.places.keys() - {*groups, *schedules, *kernels}
    for declaration in tree.declarations:
        match declaration:
            case syntax.Schedule(declared):
                names.declare("schedule", declared)
                schedules.setdefault(declared.text, declaration)
            case syntax.PartGroup(declared):
                names.declare("group of parts", declared)
                groups.setdefault(declared.text, declaration)
            case syntax.Kernel(declared):
                names.declare("kernel", declared)
                if resolve_kernel(declaration, found) is None:
                    unread.add(declared.text)
                else:
                    kernels.setdefault(declared.text, declaration)
            case syntax.Select(declared):
                names.declare("select", declared)
    return _Declared(imported, groups, schedules, kernels, frozenset(unread))
