"""The source files of a kernel: its own, and those of its package that it stands on.

They count as code: comments, docstrings, annotations and layout are no part of it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from dynaflow_dsl.runtime.code_text import without_layout, written
from dynaflow_dsl.runtime.held_values import described
from dynaflow_dsl.runtime.kernels import Kernel

# What every kernel is made with, and part of none: a module has a format for it.
_RUNTIME = __name__.rpartition(".")[0]


def kernel_digest(kernel: Kernel) -> str:
    """12 hex digits of what a kernel and its reference do, and of what is said of it.

    That is which functions they are, with the values that these hold, and the code in
    their files and in that which declares the kernel.
    """
    functions = kernel.function, kernel.reference
    held = [each and described(each) for each in functions]
    code = source_digest(*functions, declared=kernel.declared)
    return hashlib.sha256(json.dumps([held, code]).encode()).hexdigest()[:12]


def source_digest(
    *functions: Callable[..., Any] | None, declared: tuple[str, str] | None = None
) -> str:
    """12 hex digits of the code in files that functions are written in and stand on.

    `declared` are the name and the file of one more module.

    They stand on what these files import from the same top-level package, and what that
    imports, inside of functions too. A package's `__init__` counts where a name is
    taken from it, not where a module of it is. Nothing is imported for that. Of
    functions without a file they are the digits of nothing.
    """
    found: dict[Path, None] = {}
    modules = [_module_of(function) for function in functions if function is not None]
    if declared is not None and Path(declared[1]).is_file():
        modules.append(_Module(declared[0], Path(declared[1]).absolute()))
    for module in filter(None, modules):
        for path in _files(module):
            found.setdefault(path)
    digest = hashlib.sha256()
    for text in dict.fromkeys(_code(_text(path)) for path in found):
        digest.update(f"{len(text)}:".encode() + text)
    return digest.hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class _Module:
    """A module by its dotted name, and the file that it is."""

    name: str
    path: Path

    @property
    def package(self) -> str:
        """What its relative imports start from."""
        if self.path.name == "__init__.py":
            return self.name
        return self.name.rpartition(".")[0]


def _module_of(function: Callable[..., Any]) -> _Module | None:
    """Where a function is written, whatever it is wrapped in."""
    while isinstance(function, partial) or hasattr(function, "__wrapped__"):
        if isinstance(function, partial):
            function = function.func
        else:
            function = inspect.unwrap(function)
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        return None
    if file is None or not Path(file).is_file():
        return None
    # As it is found: what a link leads to may have another name.
    return _Module(str(getattr(function, "__module__", "")), Path(file).absolute())


def _files(first: _Module) -> Iterator[Path]:
    """The module's own file, then those that it stands on, by their names."""
    yield first.path
    if (root := _root(first)) is None:
        return
    known = {first.name: first}
    waiting = [first]
    while waiting:
        for module in _imported(waiting.pop(), root):
            if module.name not in known:
                known[module.name] = module
                waiting.append(module)
    del known[first.name]
    for name in sorted(known):
        yield known[name].path


def _root(module: _Module) -> Path | None:
    """The folder that holds the module's top-level package; None without a package."""
    names = module.name.split(".")
    folder = module.path.parent
    if module.path.name != "__init__.py" and names.pop() != module.path.stem:
        return None
    for name in reversed(names):
        if folder.name != name:
            return None
        folder = folder.parent
    return folder if names else None


def _imported(module: _Module, root: Path) -> Iterator[_Module]:
    top = module.name.partition(".")[0]
    for level, base, name in _imports(_text(module.path)):
        if level:
            parents = module.package.split(".")
            parents = parents[: len(parents) - level + 1]
            base = ".".join((*parents, *filter(None, [base])))
        if base.partition(".")[0] != top or f"{base}.".startswith(f"{_RUNTIME}."):
            continue
        # A name may be a module of its own.
        for full in filter(None, (name and f"{base}.{name}", base)):
            if (path := _path(root, full)) is not None:
                if not f"{full}.".startswith(f"{_RUNTIME}."):
                    yield _Module(full, path)
                break


def _path(root: Path, name: str) -> Path | None:
    place = root.joinpath(*name.split("."))
    # In the order in which Python looks for them.
    for path in (place / "__init__.py", place.with_name(f"{place.name}.py")):
        if path.is_file():
            return path
    return None


@lru_cache(maxsize=1024)
def _imports(text: bytes) -> tuple[tuple[int, str, str], ...]:
    """What a text imports: how many dots, a module, and a name from it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    found: list[tuple[int, str, str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                found += [(0, each.name, "") for each in names]
            case ast.ImportFrom(base, names, level):
                found += [(level, base or "", each.name) for each in names]
    return tuple(found)


@lru_cache(maxsize=1024)
def _code(text: bytes) -> bytes:
    """What a text says to Python; the text itself where that cannot read it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    return written(without_layout(tree)).encode()


def _text(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n")
