"""Is a module on disk what the compiler would write now, and if not, why not?"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dynaflow_dsl.cli.modules import MARK, ModuleText
from dynaflow_dsl.cli.options import Given
from dynaflow_dsl.diagnostics import Diagnostic


def compare(
    name: str, stored: ModuleText, current: ModuleText, repair: str
) -> tuple[Diagnostic, ...]:
    """What is wrong with the stored module; nothing if it is up to date.

    `name` is the module's path for messages and `repair` the command that makes it
    current. A hand edit is reported beside staleness, since both may be true.
    """
    if stored == current:
        return ()
    if stored.module is None:
        return (_stale("DFS501", f"{name} is missing", repair),)
    if not stored.module.startswith(MARK):
        return (_foreign(name),)
    if stored.map is None:
        return (_stale("DFS501", f"the map of {name} is missing", repair),)
    old, new = read_map(stored.map), read_map(current.map) or {}
    if old is None:
        return (_stale("DFS501", f"the map of {name} cannot be read", repair),)
    if (unknown := unknown_format(name, stored, current)) is not None:
        return (unknown,)
    found: list[Diagnostic] = []
    if edited_by_hand(stored):
        found.append(_edited(name, repair))
    if old.get("schedule") != new.get("schedule"):
        why = f"the schedule in {new.get('source')} changed"
        notes: tuple[str, ...] = ()
        was, now = stored_given(stored), stored_given(current)
        if was.parameters != now.parameters:
            why = "it was compiled with other parameters"
            notes = (f"was: {_listed(was)}", f"is: {_listed(now)}")
        found.append(_stale("DFS501", f"{name} is stale: {why}", repair, notes))
    found += _graph_changes(name, stored, current, repair)
    if not found:
        found.append(_other_change(name, stored, current, repair))
    return tuple(found)


def _listed(given: Given) -> str:
    """The parameters of a command line as they stand there."""
    options = [f"-P {name}={text}" for name, text in given.parameters.items()]
    return " ".join(options) or "no -P"


def edited_by_hand(stored: ModuleText) -> bool:
    """Whether a module differs from the bytes that its map was written with."""
    known = read_map(stored.map)
    if stored.module is None or known is None:
        return False
    return known.get("body") != hashlib.sha256(stored.module.encode()).hexdigest()


def may_be_lost(stored: ModuleText, current: ModuleText) -> bool:
    """Whether writing over a module could lose what no compilation makes again.

    It is no generated module, one of a later format, edited by hand, or without the map
    that would tell. A program that writes modules by itself leaves those alone.
    """
    if stored.module is None or stored.module == current.module:
        return False
    return (
        not stored.module.startswith(MARK)
        or read_map(stored.map) is None
        or edited_by_hand(stored)
        or unknown_format("", stored, current) is not None
    )


def unknown_format(
    name: str, stored: ModuleText, current: ModuleText
) -> Diagnostic | None:
    """DFS505 when a module is of a later format than this version writes.

    Formats are numbers that only rise; an earlier one is merely stale.
    """
    old, new = read_map(stored.map) or {}, read_map(current.map) or {}
    format_, known = old.get("format"), new.get("format")
    if type(format_) is not int or type(known) is not int or format_ <= known:
        return None
    return Diagnostic(
        "DFS505",
        f"{name} has format {format_}, and this version of dfsc knows {known}",
        helps=(
            "install the version of dfsc that made it, or a later one",
            "delete the module to have it written in the format of this version",
        ),
    )


def stored_target(stored: ModuleText) -> tuple[str, dict[str, Any]] | None:
    """The trace target and its arguments that a module was compiled with."""
    known = read_map(stored.map) or {}
    match known.get("target"):
        case {"name": str(name), "arguments": dict(arguments)} if name:
            return name, arguments
    return None


def made_by_a_program(stored: ModuleText) -> bool:
    """Whether a module is of a graph that a program's `torch.compile` captured.

    Such a module names no trace target: only the program knows the model.
    """
    known = read_map(stored.map) or {}
    match known.get("target"):
        case {"name": ""}:
            return True
    return False


def compare_text(name: str, stored: ModuleText, digest: str) -> tuple[Diagnostic, ...]:
    """What is wrong with a module of a program as far as it shows without its model.

    `digest` is that of the schedule file as it is now.
    """
    known = read_map(stored.map) or {}
    found: list[Diagnostic] = []
    if edited_by_hand(stored):
        found.append(_edited(name, ""))
    if known.get("schedule") != digest:
        why = f"the schedule in {known.get('source')} changed"
        found.append(_stale("DFS501", f"{name} is stale: {why}", ""))
    return helped_by_program(found)


def helped_by_program(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """What is wrong with a module, where no command makes it current but a program."""
    return tuple(replace(each, helps=_program_helps(each)) for each in found)


def _program_helps(item: Diagnostic) -> tuple[str, ...]:
    if item.code == "DFS504":
        return (
            "change the schedule instead of the module",
            "delete the module and its map to have them written again; the edit is "
            "lost",
        )
    if item.message.startswith("the map of "):
        return ("delete the module to have both written again; edits of it are lost",)
    if item.message.endswith("is missing"):
        return ('leave out the option "write" of its backend to have it written',)
    if item.message.endswith("is not a generated module"):
        return ('choose another place with the option "module" of the backend',)
    if item.code in ("DFS501", "DFS502"):
        return (
            'run the program with the option "write": "always" of its backend to have '
            "it written again",
        )
    return item.helps


def stored_given(stored: ModuleText) -> Given:
    """The parameters and facts that a module was compiled with on a command line."""
    known = read_map(stored.map) or {}
    match known.get("given"):
        case {"parameters": dict(parameters), "facts": dict(facts)}:
            return Given(
                {str(name): str(text) for name, text in parameters.items()},
                {
                    str(name): value
                    for name, value in facts.items()
                    if isinstance(value, bool | int | float | str)
                },
            )
    return Given()


def changed_function(old: str, new: str) -> tuple[str, str, str] | None:
    """The first function of the new module whose operations differ from the old one's.

    Its name, and the first statements that differ: the old and the new one, empty where
    one side has ended. None when all functions are equal.
    """
    before, after = _functions(old), _functions(new)
    for name, body in after.items():
        known = before.get(name, ())
        for position in range(max(len(known), len(body))):
            one = known[position] if position < len(known) else ""
            other = body[position] if position < len(body) else ""
            if one != other:
                return name, one, other
    for name, body in before.items():
        if name not in after:
            return name, body[0], ""
    return None


def _functions(text: str) -> dict[str, tuple[str, ...]]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    return {
        node.name: tuple(_statements(node))
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def _statements(function: ast.FunctionDef) -> Iterator[str]:
    yield f"def {function.name}({ast.unparse(function.args)})"
    body = function.body if ast.get_docstring(function) is None else function.body[1:]
    yield from map(ast.unparse, body)


def _graph_changes(
    name: str, stored: ModuleText, current: ModuleText, repair: str
) -> Iterator[Diagnostic]:
    old, new = _graph_digests(stored.map), _graph_digests(current.map)
    entries = [e for e in (*new, *(set(old) - set(new))) if old.get(e) != new.get(e)]
    if not entries:
        return
    message = f"{name} is stale: the model's graph changed (entry {', '.join(entries)})"
    notes: tuple[str, ...] = ()
    difference = changed_function(stored.module or "", current.module or "")
    if difference is not None:
        function, before, after = difference
        message += f", first in function {function}"
        notes = (f"was: {before or 'nothing'}", f"is: {after or 'nothing'}")
    yield _stale("DFS502", message, repair, notes)


def _graph_digests(text: str | None) -> dict[str, Any]:
    digests = (read_map(text) or {}).get("graph")
    return digests if isinstance(digests, dict) else {}


def _other_change(
    name: str, stored: ModuleText, current: ModuleText, repair: str
) -> Diagnostic:
    if stored.module != current.module:
        old = (stored.module or "").splitlines()
        new = (current.module or "").splitlines()
        pairs = zip(old, new, strict=False)
        line = next(
            (n for n, (a, b) in enumerate(pairs, 1) if a != b),
            min(len(old), len(new)) + 1,
        )
        message = f"{name} is stale: dfsc writes line {line} differently now"
        return _stale("DFS501", message, repair)
    maps = read_map(stored.map), read_map(current.map)
    key, old_value, new_value = _first_difference(*maps)
    message = f"{name} is stale: its map has another `{key}`"
    return _stale("DFS501", message, repair, (f"was: {old_value}", f"is: {new_value}"))


def _first_difference(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in (*new, *(key for key in old if key not in new)):
            if old.get(key) != new.get(key):
                inner = f"{path}.{key}" if path else str(key)
                return _first_difference(old.get(key), new.get(key), inner)
    return path or "layout", _short(old), _short(new)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def read_map(text: str | None) -> dict[str, Any] | None:
    """The contents of a map; None when there is none or it is no JSON object."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _foreign(name: str) -> Diagnostic:
    return Diagnostic(
        code="DFS501",
        message=f"{name} is not a generated module",
        notes=(f"a generated module begins with '{MARK.strip()}'",),
        helps=("choose another folder with -o, or move the file away",),
    )


def _edited(name: str, repair: str) -> Diagnostic:
    return Diagnostic(
        code="DFS504",
        message=f"{name} was edited by hand",
        notes=("its bytes are not those that its map was written with",),
        helps=(
            "change the schedule instead of the module",
            f"run `{repair}` to write the module again; the edit is lost",
        ),
    )


def _stale(
    code: str, message: str, repair: str, notes: tuple[str, ...] = ()
) -> Diagnostic:
    helps = (f"run `{repair}`",)
    return Diagnostic(code=code, message=message, notes=notes, helps=helps)
