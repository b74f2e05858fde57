"""The code that a model's classes are made of, definition by definition.

Comments, docstrings, annotations, layout and the order of definitions are no part of
it. What a class uses is followed by its names: in its own file, and from one file of
the user's to others of the user's. Nothing is imported for that, and files of installed
packages are not left: their own names may lead anywhere.

Statements that run when such a file is imported may change what others find there
without naming it, and count as well.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from dynaflow_dsl.runtime.code_text import written
from dynaflow_dsl.runtime.model_code import is_own_code
from dynaflow_dsl.runtime.source_files import (
    Import,
    Statement,
    source_file,
)


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
class _Use:
    """A dotted name in a file: `rest` is what is taken of the name at its top."""

    path: Path
    name: str
    rest: tuple[str, ...] = ()


def definitions(
    starts: Iterable[Start], used: Iterable[Start] = ()
) -> dict[str, Definition]:
    """What code at `starts` consists of, by the keys of definitions.

    `used` is code that it is known to use besides.
    """
    waiting = [_Use(Path(start.file), start.name) for start in starts]
    first = dict.fromkeys(use.path for use in waiting)
    waiting += [_Use(Path(each.file), each.name) for each in used]
    found: dict[tuple[Path, int, str], tuple[Definition, str]] = {}
    known: set[_Use] = set()
    files: set[Path] = set()
    for path in first:
        # What the file of a class imports may have been for what it does.
        imported = source_file(path).imports.values()
        for bound in (each for several in imported for each in several):
            waiting += [_Use(use.path, "") for use in _module_of(path, bound)]
    while waiting:
        use = waiting.pop()
        if use in known:
            continue
        known.add(use)
        if use.path not in files:
            files.add(use.path)
            text, runs = _running(use.path, everything=use.path in first)
            waiting += runs
            found[use.path, 0, ""] = Definition("", "", str(use.path), ""), text
        if not use.name:
            continue
        for statement in source_file(use.path).named(use.name):
            origins, others = _uses(use.path, statement)
            waiting += others
            text = json.dumps([written(statement.node), origins])
            label = next(iter(statement.binds), "")
            definition = Definition(label, _kind(statement.node), str(use.path), "")
            found[use.path, statement.node.lineno, ""] = definition, text
        for bound in source_file(use.path).imports.get(use.name, ()):
            # Handed on from elsewhere, as a package's `__init__` does.
            waiting += _definition(use.path, bound, use.rest)
            definition = Definition(use.name, "the name", str(use.path), "")
            found[use.path, 0, f"{use.name} {bound.origin}"] = definition, bound.origin
    return _by_name(found.values())


def _uses(path: Path, statement: Statement) -> tuple[list[list[str]], list[_Use]]:
    """Where names in a statement are imported from, and what it uses."""
    origins: set[tuple[str, str]] = set()
    used: list[_Use] = []
    for chain in statement.chains():
        bounds, followed = _followed(path, statement, chain)
        used += followed
        origins |= {(chain[0], bound.origin) for bound in bounds}
    return [list(each) for each in sorted(origins)], used


def _running(path: Path, *, everything: bool) -> tuple[str, list[_Use]]:
    """What runs when a file is imported, and what that uses.

    What a decorator of an installed package makes registers nothing with the user's
    code, and is left out. Such functions are used where `everything` is wanted, but one
    more of them is no difference. Nor is one more class, and those of installed files
    are left out: whole files of theirs are decorated.
    """
    texts: list[object] = []
    used: list[_Use] = []
    for statement in source_file(path).running:
        node, name = statement.node, next(iter(statement.binds), "")
        decorators = getattr(node, "decorator_list", [])
        ours = not decorators or any(_is_ours(path, one) for one in decorators)
        if isinstance(node, ast.ClassDef):
            used += [_Use(path, name)] if ours and is_own_code(str(path)) else []
        elif ours:
            origins, uses = _uses(path, statement)
            texts.append(name or [written(node), origins])
            used += [_Use(path, name)] if name else uses
        elif everything:
            used.append(_Use(path, name))
    return json.dumps(texts), used


def _is_ours(path: Path, decorator: ast.expr) -> bool:
    """Whether a decorator is of the same package, or the user's own.

    The former is so wherever the package lies.
    """
    node: ast.AST = decorator
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    if not isinstance(node, ast.Name):
        return False
    file = source_file(path)
    package = _top(path)
    return bool(file.named(node.id)) or any(
        bound.level
        or bound.module.partition(".")[0] == package
        or _module_of(path, bound)
        for bound in file.imports.get(node.id, ())
    )


def _top(path: Path) -> str:
    """The name of the package at the top that a file is in."""
    name, folder = path.stem, path.parent
    while _initial(folder) is not None and folder != folder.parent:
        name, folder = folder.name, folder.parent
    return name


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
    path: Path, statement: Statement, chain: tuple[str, ...]
) -> tuple[list[Import], list[_Use]]:
    """What a dotted name that a statement uses is imported from, and its definition."""
    name, *rest = chain
    file = source_file(path)
    own = [_Use(path, name)] if file.named(name) else []
    inner = [bound for each, bound in statement.imports if each == name]
    bounds = inner or list(file.imports.get(name, ()))
    if bounds:
        followed = [
            use for bound in bounds for use in _definition(path, bound, tuple(rest))
        ]
        # A name that is bound here too is imported where there is something to import.
        return bounds, own + followed
    if own:
        return [], own
    for star in file.stars:
        if followed := _definition(path, star, (name,)):
            return [], followed
    return [], []


def _definition(
    path: Path,
    bound: Import,
    rest: tuple[str, ...],
    seen: frozenset[tuple[Path, Import]] = frozenset(),
) -> list[_Use]:
    """Where the dotted name `rest` of what a file imports is defined, if it is ours.

    Of a module that is used as a whole, that is all that it defines.
    """
    if (path, bound) in seen:
        return []
    seen |= {(path, bound)}
    target, parts = _located(path, bound, rest)
    if target is None:
        return []
    file = source_file(target)
    if not parts:
        return [_Use(target, name) for name in ("", *file.names)]
    if file.named(parts[0]) or parts[0] in file.imports:
        return [_Use(target, parts[0], tuple(parts[1:]))]
    for star in file.stars:
        if followed := _definition(target, star, tuple(parts), seen):
            return followed
    return []


def _module_of(path: Path, bound: Import) -> list[_Use]:
    """The module that an import of the user's code runs, if it is ours."""
    target, _ = _located(path, bound, ())
    return [] if target is None else [_Use(target, "")]


def _located(
    path: Path, bound: Import, rest: tuple[str, ...]
) -> tuple[Path | None, list[str]]:
    """The file that an import and names behind it lead to, and the names that are left.

    None where it is not the user's, or none that was found.
    """
    if not is_own_code(str(path)):
        return None, []
    parts = [*filter(None, [*bound.module.split("."), bound.name]), *rest]
    folder = _folder(path, bound, parts)
    if folder is None:
        return None, []
    target: Path | None = None
    while parts and (inner := _module(folder, parts[0])) is not None:
        folder, target, parts = folder / parts[0], inner, parts[1:]
    if target is None and bound.level:
        target = _initial(folder)
    if target is None or target.is_dir() or not is_own_code(str(target)):
        return None, []
    return target, parts


def _folder(path: Path, bound: Import, parts: list[str]) -> Path | None:
    """The folder in which the module that a file imports is ours.

    By where files lie, since one file may be imported under several names.
    """
    if bound.level:
        above = path.parents[bound.level - 1 : bound.level]
        return above[0] if above else None
    if not parts:
        return None
    top = path.parent
    for folder in path.parents:
        if folder.name == parts[0] and _module(folder.parent, parts[0]) is not None:
            return folder.parent
    while _initial(top) is not None and top != top.parent:
        top = top.parent
    # Beside the file or its package, else where Python would find it now.
    for folder in (top, *_import_path(tuple(sys.path))):
        if (module := _module(folder, parts[0])) is not None and not module.is_dir():
            return folder
    spread = (top, *_import_path(tuple(sys.path)))
    return next((each for each in spread if _module(each, parts[0])), None)


@lru_cache(maxsize=8)
def _import_path(entries: tuple[str, ...]) -> tuple[Path, ...]:
    """The folders from which Python imports."""
    paths = (Path(entry).absolute() for entry in entries)
    return tuple(path for path in paths if path.is_dir())


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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
