"""The contexts of a Dynamo graph's calls, read from their stack traces.

When a backend gets its graph the model's code has run already, symbolically: there is
no Python stack to look at, but every node has the text of one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePath

from torch.fx import GraphModule, Node

from dynaflow_dsl.marks import ANNOTATION
from dynaflow_dsl.runtime.model_code import is_model_code
from dynaflow_dsl.trace.contexts import Context, context_frame
from dynaflow_dsl.trace.target import LOADED_FROM_FILE

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)')


class ContextTable:
    """Contexts by number, as they come."""

    __slots__ = ("_modules", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[Context, int] = {}
        self._modules = dict(_modules())

    def stack(self, node: Node) -> str:
        """The stack trace of a node, after a frame that names its context."""
        text = str(node.meta.get("stack_trace") or "")
        context = Context(tuple(self._functions(text)), tuple(_marks(node)))
        number = self._numbers.setdefault(context, len(self._numbers))
        return context_frame(number) + text

    def contexts(self) -> tuple[Context, ...]:
        """All contexts by number."""
        return tuple(self._numbers)

    def _functions(self, stack: str) -> dict[str, None]:
        found: dict[str, None] = {}
        for match in _FRAME.finditer(stack):
            file = match["file"]
            if not is_model_code(file):
                continue
            function = _function_at(file, int(match["line"]), match["name"])
            if function:
                module = self._modules.get(file) or PurePath(file).stem
                found[f"{module}.{function}"] = None
        return found


def _modules() -> Iterator[tuple[str, str]]:
    """Names of imported modules by their files."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # A file that is no module of a package goes by its own name.
        if file and name != "__main__" and not name.startswith(LOADED_FROM_FILE):
            yield str(file), name


def _marks(node: Node) -> list[str]:
    custom = node.meta.get("custom")
    if not isinstance(custom, Mapping):
        return []
    names = [name for name in custom if isinstance(name, str)]
    return [name[len(ANNOTATION) :] for name in names if name.startswith(ANNOTATION)]


def _function_at(file: str, line: int, name: str) -> str:
    """The qualified name of the function around a line, as `Outer.inner`.

    Where the file's text is not there to be read, the bare name that a frame has.
    """
    found = ""
    first = 0
    for function, begin, end in _functions_of(file):
        if begin <= line <= end and begin >= first:
            found, first = function, begin
    return found or ("" if name.startswith("<") else name)


@lru_cache(maxsize=1024)
def _functions_of(file: str) -> tuple[tuple[str, int, int], ...]:
    """Qualified names of a file's functions, with their first and last lines."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple(_within(tree, ()))


def _within(parent: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
    for node in ast.iter_child_nodes(parent):
        inner = names
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (*names, node.name)
            if not isinstance(node, ast.ClassDef):
                yield ".".join(inner), node.lineno, node.end_lineno or node.lineno
        yield from _within(node, inner)


def with_contexts(graph: GraphModule, table: ContextTable) -> None:
    """Let the stack trace of every node name its context."""
    for node in graph.graph.nodes:
        node.meta["stack_trace"] = table.stack(node)
