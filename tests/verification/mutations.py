"""Breaks generated modules on purpose, one small edit of their text at a time.

Every edit keeps the number of lines up to the edit, so that the map still fits there.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Mutation:
    """A broken module: what was done to it, and its text."""

    name: str
    text: str


def without_waits(text: str) -> list[Mutation]:
    """The module with each of its waits removed alone."""
    return [
        Mutation(f"without line {node.lineno}: {_code(text, node)}", _blank(text, node))
        for node in _statements(text)
        if _is_call_of(node, "wait")
    ]


def without_joins(text: str) -> list[Mutation]:
    """The module with each closing join removed alone."""
    return [
        Mutation(f"without line {node.lineno}: {_code(text, node)}", _blank(text, node))
        for node in _statements(text)
        if _is_call_of(node, "join")
    ]


def with_early_frees(text: str) -> list[Mutation]:
    """The module with each `del` moved alone to the first place Python allows.

    That is after the last statement of its block that mentions one of its names, or the
    start of the block. A `del` that passes no wait on the way is left out. The name of
    a sliced tensor may go early without a fault, while its pieces keep the storage.
    """
    found = []
    for block in _blocks(text):
        for position, node in enumerate(block):
            if not isinstance(node, ast.Delete):
                continue
            names = _names(node)
            target = position
            while target > 0 and not names & _names(block[target - 1]):
                target -= 1
            passed = block[target:position]
            if any(_is_call_of(one, "wait") for one in passed):
                moved = _move(text, node, before=block[target])
                name = f"line {node.lineno} to line {block[target].lineno}"
                found.append(Mutation(f"{_code(text, node)} from {name}", moved))
    return found


def without_bases(text: str) -> list[Mutation]:
    """The module with the name of each sliced tensor dropped as soon as it is sliced.

    Its pieces keep the storage alive, until they are rebound.
    """
    found = []
    for step in _steps(text):
        for node in ast.walk(step):
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
                continue
            bases = {
                element.value.id
                for element in node.value.elts
                if isinstance(element, ast.Subscript)
                and isinstance(element.value, ast.Name)
            }
            for base in sorted(bases):
                dropped = _drop_base(text, step, node, base)
                if dropped is not None:
                    found.append(
                        Mutation(f"{base} dropped on line {node.lineno}", dropped)
                    )
    return found


def with_frees_at_readers(text: str, name: str) -> Mutation:
    """The module with a result dropped as soon as its readers have been issued.

    They may still run then, and the stream that made it has not waited for them.
    """
    for block in list(_blocks(text)):
        for node in block:
            if isinstance(node, ast.Delete) and _names(node) == {name}:
                text = _replace(text, node, "pass")
    for node in [one for one in _statements(text) if isinstance(one, ast.With)]:
        (call,) = node.body[-1:]
        reads = {
            one.id
            for one in ast.walk(call)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
        }
        if name in reads:
            text = _replace(text, call, f"{_code(text, call)}; del {name}")
    return Mutation(f"{name} dropped at its readers", text)


def with_shared_results(text: str, name: str, other: str) -> Mutation:
    """The module with one result written into the memory of another one."""
    for node in list(_statements(text)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            code = f"{other}.copy_({_code(text, node.value)})"
            text = _replace(text, node.value, code)
    return Mutation(f"{name} in the memory of {other}", text)


def with_wrong_slices(text: str) -> list[Mutation]:
    """The module with each slice of one piece taken from another piece instead."""
    found = []
    for step in _steps(text):
        pieces = _piece_names(step)
        for node in ast.walk(step):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.slice, ast.Name)
                and node.slice.id in pieces
            ):
                index = pieces.index(node.slice.id)
                other = pieces[(index + 1) % len(pieces)]
                place = f"line {node.lineno}: {ast.unparse(node)}"
                found.append(
                    Mutation(f"{place} with {other}", _replace(text, node.slice, other))
                )
    return found


def write_module(
    folder: Path, name: str, text: str, document: Mapping[str, Any]
) -> ModuleType:
    """Write a module with its map into `folder` and import it from there."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    body = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".map.json").write_text(json.dumps({**document, "body": body}))
    return import_module(path)


def import_module(path: Path) -> ModuleType:
    """The module in a file, imported afresh."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _steps(text: str) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == "step":
            yield node


def _blocks(text: str) -> Iterator[list[ast.stmt]]:
    for step in _steps(text):
        for node in ast.walk(step):
            body = getattr(node, "body", None)
            if isinstance(body, list):
                yield body


def _statements(text: str) -> Iterator[ast.stmt]:
    for block in _blocks(text):
        yield from block


def _is_call_of(node: ast.stmt, method: str) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == method
    )


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _piece_names(step: ast.FunctionDef) -> list[str]:
    for node in ast.walk(step):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and node.value.func.attr == "slices"
            and isinstance(node.targets[0], ast.Tuple)
        ):
            return [
                name.id for name in node.targets[0].elts if isinstance(name, ast.Name)
            ]
    return []


def _drop_base(
    text: str, step: ast.FunctionDef, slicing: ast.Assign, base: str
) -> str | None:
    """None where the base is read again later; the name may be given away later."""
    start = slicing.end_lineno or slicing.lineno
    rebound = [
        node.lineno
        for node in ast.walk(step)
        if isinstance(node, ast.Name)
        and node.id == base
        and isinstance(node.ctx, ast.Store)
        and node.lineno > start
    ]
    end = min(rebound, default=(step.end_lineno or start) + 1)
    frees: list[ast.Delete] = []
    for node in ast.walk(step):
        if not isinstance(node, ast.stmt) or not start < node.lineno < end:
            continue
        if isinstance(node, ast.Delete) and base in _names(node):
            frees.append(node)
    freed = {name for free in frees for name in ast.walk(free)}
    for node in ast.walk(step):
        if (
            isinstance(node, ast.Name)
            and node.id == base
            and start < node.lineno < end
            and node not in freed
        ):
            return None
    for free in frees:
        kept = [
            ast.unparse(target) for target in free.targets if _names(target) != {base}
        ]
        text = _replace(text, free, f"del {', '.join(kept)}" if kept else "pass")
    return _replace(text, slicing, f"{_code(text, slicing)}; del {base}")


def _code(text: str, node: ast.AST) -> str:
    code = ast.get_source_segment(text, node)
    assert code is not None
    return code


def _blank(text: str, node: ast.stmt) -> str:
    lines = (node.end_lineno or node.lineno) - node.lineno
    return _replace(text, node, "pass" + "\n" * lines)


def _move(text: str, node: ast.stmt, *, before: ast.stmt) -> str:
    code = _code(text, node)
    return _replace(_replace(text, node, "pass"), before, code, insert=True)


def _replace(text: str, node: Any, code: str, *, insert: bool = False) -> str:
    """Put `code` in place of a node, or before it on the same line."""
    lines = text.splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1
    head = lines[first].encode()[: node.col_offset].decode()
    if insert:
        rest = lines[first][len(head) :]
        # A compound statement cannot follow another one on its line.
        lines[first] = f"{head}{code}\n{head}{rest}"
    else:
        tail = lines[last].encode()[node.end_col_offset :].decode()
        lines[first : last + 1] = [head + code + tail]
    return "".join(lines)
