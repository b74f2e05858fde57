"""The code that a model's classes are made of, definition by definition.

Comments, docstrings, annotations, layout and the order of definitions are no part of
it. What a class uses is followed by its names: in its own file, and from one file of
the user's to others of the same package, or beside it where it has none. Nothing is
imported for that, and files of installed packages are not left: their own names may
lead anywhere.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import CodeType

from dynaflow_dsl.runtime.code_text import without_layout, written
from dynaflow_dsl.runtime.model_code import is_own_code


@dataclass(frozen=True, slots=True)
class Definition:
    """Code at the top of a file that binds a name, or runs when it is imported.

    `name` is empty for all that runs and binds nothing. `kind` is the word for it.
    `digest` has 12 hex digits, of all definitions of that name.
    """

    name: str
    kind: str
    file: str
    digest: str

    @property
    def key(self) -> str:
        """The file's name and the definition's, wherever the file lies."""
        path = Path(self.file)
        stem = path.parent.name if path.stem == "__init__" else path.stem
        return f"{stem}.{self.name}".rstrip(".")


@dataclass(frozen=True, slots=True)
class Start:
    """Where code begins: a name at the top of a file."""

    name: str
    file: str


@dataclass(frozen=True, slots=True)
class _Import:
    """What a name is bound to: a module, or `name` of it; `level` counts its dots."""

    level: int
    module: str
    name: str = ""

    @property
    def origin(self) -> str:
        return f"{'.' * self.level}{self.module} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement at the top of a file.

    `runs` says that it does more than bind its names: it may register what others find
    without naming it.
    """

    node: ast.stmt
    binds: tuple[str, ...]
    runs: bool

    def chains(self) -> Iterator[tuple[str, ...]]:
        """The dotted names that it uses."""
        names = _global_names(self.node)
        names |= {bound for bound, _ in _imports([self.node])}
        for node in ast.walk(self.node):
            chain: tuple[str, ...] = ()
            inner: ast.AST = node
            while isinstance(inner, ast.Attribute):
                chain = (inner.attr, *chain)
                inner = inner.value
            if isinstance(inner, ast.Name) and inner.id in names:
                yield (inner.id, *chain)


@dataclass(frozen=True, slots=True)
class _File:
    statements: tuple[_Statement, ...]
    imports: Mapping[str, _Import]
    stars: tuple[_Import, ...]

    def named(self, name: str) -> list[_Statement]:
        """The statements that bind a name; of no name, those that run and bind none."""
        if not name:
            return [each for each in self.statements if each.runs and not each.binds]
        return [each for each in self.statements if name in each.binds]

    @property
    def running(self) -> set[str]:
        return {next(iter(each.binds), "") for each in self.statements if each.runs}


def definitions(starts: Iterable[Start]) -> dict[str, Definition]:
    """What code at `starts` consists of, by the keys of definitions."""
    waiting = [(Path(start.file), start.name) for start in starts]
    for path in dict.fromkeys(path for path, _ in waiting):
        waiting += [(path, name) for name in _file(path).running]
    found: dict[tuple[Path, int], tuple[Definition, str]] = {}
    known: set[tuple[Path, str]] = set()
    while waiting:
        path, name = waiting.pop()
        if (path, name) in known:
            continue
        known.add((path, name))
        for statement in _file(path).named(name):
            origins: set[tuple[str, str]] = set()
            for chain in statement.chains():
                bound, followed = _followed(path, statement, chain)
                waiting += followed
                if bound is not None:
                    origins.add((chain[0], bound.origin))
            text = json.dumps([written(statement.node), sorted(origins)])
            label = next(iter(statement.binds), "")
            definition = Definition(label, _kind(statement.node), str(path), "")
            found[path, statement.node.lineno] = definition, text
    return _by_name(found.values())


def _by_name(found: Iterable[tuple[Definition, str]]) -> dict[str, Definition]:
    texts: dict[str, list[str]] = {}
    first: dict[str, Definition] = {}
    for definition, text in found:
        texts.setdefault(definition.key, []).append(text)
        first.setdefault(definition.key, definition)
    return {
        key: replace(first[key], digest=_digest("\n".join(sorted(texts[key]))))
        for key in sorted(texts)
    }


def _kind(node: ast.stmt) -> str:
    match node:
        case ast.ClassDef():
            return "the class"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return "the function"
    return "the name"


def _followed(
    path: Path, statement: _Statement, chain: tuple[str, ...]
) -> tuple[_Import | None, list[tuple[Path, str]]]:
    """What a dotted name that a statement uses is imported from, and its definition."""
    name, *rest = chain
    file = _file(path)
    if file.named(name):
        return None, [(path, name)]
    bound = dict(_imports([statement.node])).get(name) or file.imports.get(name)
    if bound is not None:
        return bound, _definition(path, bound, rest)
    for star in file.stars:
        if followed := _definition(path, star, [name]):
            return None, followed
    return None, []


def _definition(
    path: Path,
    bound: _Import,
    rest: list[str],
    seen: frozenset[tuple[Path, _Import]] = frozenset(),
) -> list[tuple[Path, str]]:
    """Where the dotted name `rest` of what a file imports is defined, if it is ours."""
    if (path, bound) in seen or not is_own_code(str(path)):
        return []
    seen |= {(path, bound)}
    parts = [*filter(None, [*bound.module.split("."), bound.name]), *rest]
    folder = _folder(path, bound, parts)
    if folder is None:
        return []
    target: Path | None = None
    while parts and (inner := _module(folder, parts[0])) is not None:
        folder, target, parts = folder / parts[0], inner, parts[1:]
    if target is None and bound.level:
        target = _initial(folder)
    if target is None or not parts:
        return []
    file = _file(target)
    if file.named(parts[0]):
        return [(target, parts[0])]
    # Handed on from elsewhere, as a package's `__init__` does.
    handed = file.imports.get(parts[0])
    if handed is not None:
        return _definition(target, handed, parts[1:], seen)
    for star in file.stars:
        if followed := _definition(target, star, parts, seen):
            return followed
    return []


def _folder(path: Path, bound: _Import, parts: list[str]) -> Path | None:
    """The folder in which the module that a file imports is ours.

    By where files lie, since one file may be imported under several names.
    """
    if bound.level:
        above = path.parents[bound.level - 1 : bound.level]
        return above[0] if above else None
    for folder in path.parents:
        if folder.name == parts[0] and _module(folder.parent, parts[0]) is not None:
            return folder.parent
    # A file that belongs to no package has its neighbours.
    return path.parent if _initial(path.parent) is None else None


def _module(folder: Path, name: str) -> Path | None:
    """The file of a module, or the folder of a package without an `__init__`."""
    # In the order in which Python looks for them.
    for path in (folder / name / "__init__.py", folder / f"{name}.py", folder / name):
        if path.exists():
            return path
    return None


def _initial(folder: Path) -> Path | None:
    path = folder / "__init__.py"
    return path if path.is_file() else None


def _file(path: Path) -> _File:
    try:
        return _read(path.read_bytes())
    except OSError:
        return _File((), {}, ())


@lru_cache(maxsize=256)
def _read(content: bytes) -> _File:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return _File((), {}, ())
    top = without_layout(tree).body
    statements = tuple(
        _Statement(node, tuple(_bound(node)), _runs(node))
        for node in top
        if not isinstance(node, ast.Import | ast.ImportFrom)
    )
    stars = tuple(
        _Import(node.level, node.module or "")
        for node in top
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    )
    outer = [node for node in top if not isinstance(node, _SCOPES)]
    return _File(statements, dict(_imports(outer)), stars)


def _imports(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, _Import]]:
    """Names that statements import, those inside of functions too."""
    for statement in statements:
        for node in ast.walk(statement):
            match node:
                case ast.Import(names):
                    for each in names:
                        top = each.name.partition(".")[0]
                        whole = each.name if each.asname else top
                        yield each.asname or top, _Import(0, whole)
                case ast.ImportFrom(module, names, level):
                    for each in names:
                        bound = _Import(level, module or "", each.name)
                        yield each.asname or each.name, bound


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top of a file binds, but by importing."""
    match node:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            yield name
        case ast.Import() | ast.ImportFrom():
            return
        case _:
            for inner in ast.iter_child_nodes(node):
                yield from _bound_inside(inner)


def _bound_inside(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.stmt():
            yield from _bound(node)
        case ast.Name(name, ast.Store()):
            yield name
        case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp():
            return
        case ast.GeneratorExp():
            return
        case _:
            for inner in ast.iter_child_nodes(node):
                yield from _bound_inside(inner)


def _runs(node: ast.stmt) -> bool:
    match node:
        case ast.If(ast.Compare(ast.Name("__name__"))):
            return False
        case ast.Expr():
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return bool(node.decorator_list)
        case ast.Assign(targets):
            return any(not isinstance(each, ast.Name | ast.Tuple) for each in targets)
        case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
            inner = (each for each in ast.iter_child_nodes(node))
            return any(_runs(each) for each in inner if isinstance(each, ast.stmt))
    return False


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _global_names(node: ast.stmt) -> set[str]:
    """The names that a statement, and functions in it, look up in the file."""
    module = ast.Module([node], [])
    try:
        code = compile(module, "<definition>", "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError):
        return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    found: set[str] = set()
    waiting = [code]
    while waiting:
        one = waiting.pop()
        for instruction in dis.get_instructions(one):
            if instruction.opname in _GLOBAL and isinstance(instruction.argval, str):
                found.add(instruction.argval)
        waiting += [each for each in one.co_consts if isinstance(each, CodeType)]
    return found


_GLOBAL = frozenset({"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
