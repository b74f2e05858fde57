"""`from "FILE" import NAMES`: what other files declare.

Files are read by the caller, who knows where they are; here it is decided what is read
and what of it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve.findings import Names, given_twice, suggestions
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import SyntaxTree, parse
from dynaflow_dsl.syntax import model as syntax


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a file cannot be imported, and what to do."""

    reason: str
    helps: tuple[str, ...] = ()


# The text of the file that `from` names in a source. One file is one source, by
# whatever name it is reached: that is how a cycle is seen.
Reader: TypeAlias = Callable[[Source, str], Source | Unreadable]


def nothing_to_import(_importer: Source, _name: str) -> Unreadable:
    """The reader of a text that is in no folder."""
    return Unreadable("this text is in no folder")


@dataclass(frozen=True, slots=True)
class Imported:
    """What imports bring in, by name.

    `places` are all imported names; one that is in none of the others could not be
    read, which was said.
    """

    groups: Mapping[str, syntax.PartGroup]
    schedules: Mapping[str, syntax.Schedule]
    kernels: Mapping[str, syntax.Kernel]
    places: Mapping[str, Span]


def read_files(tree: SyntaxTree, reader: Reader, found: list[Diagnostic]) -> Files:
    """A file and all that it imports, directly or through others."""
    files = Files(reader, {tree.source: tree})
    files.read(tree)
    found += files.found
    return files


def imported_by(
    tree: SyntaxTree, files: Files, names: Names, found: list[Diagnostic]
) -> Imported:
    """The declarations that one of the files imports, and what is wrong with them."""
    groups: dict[str, syntax.PartGroup] = {}
    schedules: dict[str, syntax.Schedule] = {}
    kernels: dict[str, syntax.Kernel] = {}
    places: dict[str, Span] = {}
    for statement in _imports(tree):
        other = files.tree_of(statement)
        for name in statement.names:
            if name.text in places:
                what = f"import of '{name.text}'"
                found.append(given_twice(what, name.span, places[name.text]))
                continue
            places[name.text] = name.span
            match _declared(other, name, statement, found):
                case syntax.PartGroup() as group:
                    names.declare("group of parts", name)
                    groups[name.text] = group
                case syntax.Schedule() as schedule:
                    names.declare("schedule", name)
                    schedules[name.text] = schedule
                case syntax.Kernel() as kernel:
                    names.declare("kernel", name)
                    kernels[name.text] = kernel
    return Imported(groups, schedules, kernels, places)


def _imports(tree: SyntaxTree) -> Iterator[syntax.Import]:
    return (each for each in tree.declarations if isinstance(each, syntax.Import))


def _declared(
    tree: SyntaxTree | None,
    name: syntax.Name,
    statement: syntax.Import,
    found: list[Diagnostic],
) -> syntax.PartGroup | syntax.Schedule | syntax.Kernel | None:
    """The declaration that a name stands for in another file."""
    if tree is None:
        return None
    choices: list[str] = []
    for declaration in tree.declarations:
        match declaration:
            case syntax.PartGroup() | syntax.Schedule() | syntax.Kernel():
                if declaration.name.text == name.text:
                    return declaration
                choices.append(declaration.name.text)
            case syntax.Select():
                if declaration.name.text == name.text:
                    found.append(_select(name, declaration))
                    return None
    helps = suggestions(name.text, choices)
    for other in _imports(tree):
        if name.text in (each.text for each in other.names):
            text = f'that file imports it from "{other.file.value}" itself'
            helps = (f"{text}: name the file that declares it",)
    found.append(
        Diagnostic(
            "DFS102",
            f"there is no '{name.text}' in \"{statement.file.value}\"",
            Label(name.span, "no group of parts, schedule or kernel of this name"),
            helps=helps,
        )
    )
    return None


def _select(name: syntax.Name, declaration: syntax.Select) -> Diagnostic:
    return Diagnostic(
        "DFS108",
        f"'{name.text}' is a 'select', which no other file can use",
        Label(name.span, "not a group of parts, a schedule or a kernel"),
        (Label(declaration.name.span, "the select"),),
        helps=("import the schedules that it chooses, and choose among them here",),
    )


@dataclass(slots=True)
class Files:
    """All files that a file imports, directly or through others, each read once.

    `trees` are None for a file with errors, which are in `found`.
    """

    reader: Reader
    trees: dict[Source, SyntaxTree | None]
    targets: dict[Span, Source] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)

    def tree_of(self, statement: syntax.Import) -> SyntaxTree | None:
        """The file of an import, None when it could not be read."""
        source = self.targets.get(statement.span)
        return None if source is None else self.trees[source]

    def read(self, tree: SyntaxTree) -> None:
        """Read whatever a file imports, depth first, without recursion."""
        open_files = [(tree.source, _imports(tree))]
        chain: list[syntax.Import] = []
        while open_files:
            importer, remaining = open_files[-1]
            statement = next(remaining, None)
            if statement is None:
                open_files.pop()
                if chain:
                    chain.pop()
                continue
            source = self._source(importer, statement)
            if source is None:
                continue
            sources = [each for each, _ in open_files]
            if source in sources:
                cycle = [*chain[sources.index(source) :], statement]
                self.found.append(_cycle(source, cycle))
                continue
            self.targets[statement.span] = source
            if source not in self.trees:
                parsed = parse(source)
                self.found += parsed.diagnostics
                self.trees[source] = parsed.value
                if parsed.value is not None:
                    open_files.append((source, _imports(parsed.value)))
                    chain.append(statement)

    def _source(self, importer: Source, statement: syntax.Import) -> Source | None:
        match self.reader(importer, statement.file.value):
            case Source() as source:
                return source
            case Unreadable(reason, helps):
                self.found.append(
                    Diagnostic(
                        "DFS113",
                        f'"{statement.file.value}" cannot be imported: {reason}',
                        Label(statement.file.span, "this file"),
                        helps=helps,
                    )
                )
                return None


def _cycle(source: Source, cycle: Sequence[syntax.Import]) -> Diagnostic:
    files = [each.file.span.source.name for each in cycle]
    last = cycle[-1]
    if len(cycle) == 1:
        return Diagnostic(
            "DFS104",
            "this file imports itself",
            Label(last.file.span, "the same file"),
            helps=("names of the same file need no import",),
        )
    return Diagnostic(
        "DFS104",
        "these files import each other",
        Label(cycle[0].file.span, f"imports {files[1]}"),
        tuple(
            Label(each.file.span, f"imports {name}")
            for each, name in zip(cycle[1:], [*files[2:], source.name], strict=True)
        ),
        notes=(f"the chain: {' -> '.join([*files, source.name])}",),
        helps=("move what both need into a file that imports neither",),
    )
