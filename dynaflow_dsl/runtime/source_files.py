"""What stands at the top of a Python file, without running it.

Statements with the names that they bind and use, and what is imported from where.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType

from dynaflow_dsl.runtime.code_text import without_layout


@dataclass(frozen=True, slots=True)
class Import:
    """What a name is bound to: a module, or `name` of it; `level` counts its dots."""

    level: int
    module: str
    name: str = ""

    @property
    def origin(self) -> str:
        """As a text: `..parts halves`."""
        return f"{'.' * self.level}{self.module} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement at the top of a file.

    `runs` says that it does more than bind its names: it may register what others find
    without naming it. `imports` are those inside of it.
    """

    node: ast.stmt
    binds: tuple[str, ...]
    runs: bool
    imports: tuple[tuple[str, Import], ...]

    def chains(self) -> Iterator[tuple[str, ...]]:
        """The dotted names that it uses, as long as they are."""
        names = _global_names(self.node)
        names |= {bound for bound, _ in self.imports}
        if isinstance(self.node, ast.ClassDef):
            # An attribute of the class, and read as that.
            for bound, _ in _imports(_imports_of(self.node)):
                yield (bound,)
        waiting: list[ast.AST] = [self.node]
        while waiting:
            node = waiting.pop()
            chain: tuple[str, ...] = ()
            inner = node
            while isinstance(inner, ast.Attribute):
                chain = (inner.attr, *chain)
                inner = inner.value
            if not isinstance(inner, ast.Name):
                waiting += ast.iter_child_nodes(inner)
            elif inner.id in names:
                yield (inner.id, *chain)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """What stands at the top of a file.

    A name may be imported from several places, of which one is there.
    """

    statements: tuple[Statement, ...]
    imports: Mapping[str, tuple[Import, ...]]
    stars: tuple[Import, ...]

    def named(self, name: str) -> list[Statement]:
        """The statements that bind a name; of no name, those that run and bind none."""
        if not name:
            return [each for each in self.statements if each.runs and not each.binds]
        return [each for each in self.statements if name in each.binds]

    @property
    def names(self) -> Iterator[str]:
        """The names that its statements bind."""
        for statement in self.statements:
            yield from statement.binds

    @property
    def running(self) -> list[Statement]:
        """The statements that run, those that bind a name too."""
        return [each for each in self.statements if each.runs]


def source_file(path: Path) -> SourceFile:
    """What stands in a file; nothing in one that cannot be read."""
    try:
        return _read(path.read_bytes())
    except OSError:
        return SourceFile((), {}, ())


@lru_cache(maxsize=256)
def _read(content: bytes) -> SourceFile:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return SourceFile((), {}, ())
    top = without_layout(tree).body
    statements = tuple(
        Statement(node, tuple(_bound(node)), _runs(node), tuple(_imports([node])))
        for node in top
        if not isinstance(node, ast.Import | ast.ImportFrom)
    )
    imports: dict[str, tuple[Import, ...]] = {}
    for name, bound in _imports(each for each in top if not isinstance(each, _SCOPES)):
        imports[name] = (*imports.get(name, ()), bound)
    stars = tuple(
        Import(node.level, node.module or "")
        for node in top
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    )
    return SourceFile(statements, imports, stars)


def _imports(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, Import]]:
    """Names that statements import, those inside of functions too."""
    for statement in statements:
        for node in ast.walk(statement):
            match node:
                case ast.Import(names):
                    for each in names:
                        top = each.name.partition(".")[0]
                        whole = each.name if each.asname else top
                        yield each.asname or top, Import(0, whole)
                case ast.ImportFrom(module, names, level):
                    for each in names:
                        bound = Import(level, module or "", each.name)
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


def _imports_of(node: ast.ClassDef) -> list[ast.stmt]:
    return [each for each in node.body if isinstance(each, ast.Import | ast.ImportFrom)]


def _runs(node: ast.stmt) -> bool:
    match node:
        case ast.If(ast.Compare(ast.Name("__name__"))):
            return False
        case ast.Expr() | ast.Delete():
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return bool(node.decorator_list)
        case ast.Assign(targets):
            return any(
                not isinstance(each, ast.Name | ast.Tuple)
                # What is called only for what it does.
                or (isinstance(each, ast.Name) and each.id == "_")
                for each in targets
            )
        case ast.AugAssign(target):
            return not isinstance(target, ast.Name)
    return any(map(_runs, _statements_in(node)))


def _statements_in(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements inside of one, those of its handlers and cases too."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.stmt):
            yield each
        elif isinstance(each, ast.ExceptHandler | ast.match_case):
            yield from _statements_in(each)


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
