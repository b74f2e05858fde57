"""Is a module on disk what the compiler would write now, and if not, why not?"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, TypeAlias

from dynaflow_dsl.cli.modules import MARK, ModuleText
from dynaflow_dsl.cli.options import Given
from dynaflow_dsl.cli.stored import (
    edited_by_hand,
    made_by_a_program,
    maker_of,
    read_map,
    stored_given,
)
from dynaflow_dsl.diagnostics import Diagnostic


class State(Enum):
    """What is the matter with a module on disk: it decides what can be done about it.

    MISSING is not there. STALE can be written again without a loss, EDITED with the
    loss of the edit, and without a map (NO_MAP) nobody knows of one. FOREIGN was not
    generated, LATER is of a later version of dfsc, and OF_ANOTHER is the module of
    something else that makes one of the same name.
    """

    MISSING = auto()
    STALE = auto()
    EDITED = auto()
    NO_MAP = auto()
    FOREIGN = auto()
    LATER = auto()
    OF_ANOTHER = auto()


# What somebody can do about each state, in the words of whom they asked.
WaysOut: TypeAlias = Mapping[State, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A way in which a module on disk is not the current one.

    `found` says so without a way out: that depends on who is asked to write it.
    """

    state: State
    found: Diagnostic


def told(differences: Iterable[Difference], ways: WaysOut) -> tuple[Diagnostic, ...]:
    """Differences as diagnostics, with the ways out that a caller has."""
    return tuple(
        replace(each.found, helps=(*each.found.helps, *ways.get(each.state, ())))
        for each in differences
    )


def compare(
    name: str, stored: ModuleText, current: ModuleText
) -> tuple[Difference, ...]:
    """What is wrong with the stored module; nothing if it is up to date.

    `name` is the module's path for messages. A hand edit is reported beside staleness,
    since both may be true.
    """
    if stored == current:
        return ()
    if stored.module is None:
        if _foreign_map(stored):
            return (_no_map(name),)
        return (_stale("DFS501", f"{name} is missing", State.MISSING),)
    if not stored.module.startswith(MARK):
        return (_foreign(name),)
    if stored.map is None:
        return (_stale("DFS501", f"the map of {name} is missing", State.NO_MAP),)
    old, new = read_map(stored.map), read_map(current.map) or {}
    if old is None:
        return (_stale("DFS501", f"the map of {name} cannot be read", State.NO_MAP),)
    for rule in (unknown_format, of_another):
        if (found := rule(name, stored, current)) is not None:
            return (found,)
    differences: list[Difference] = []
    if edited_by_hand(stored):
        differences.append(_edited(name))
    if old.get("schedule") != new.get("schedule"):
        why = f"the schedule in {new.get('source')} changed"
        notes: tuple[str, ...] = ()
        was, now = stored_given(stored), stored_given(current)
        if was.parameters != now.parameters:
            why = "it was compiled with other parameters"
            notes = (f"was: {_listed(was)}", f"is: {_listed(now)}")
        message = f"{name} is stale: {why}"
        differences.append(_stale("DFS501", message, notes=notes))
    differences += _graph_changes(name, stored, current)
    return tuple(differences or [_other_change(name, stored, current)])


def compare_text(name: str, stored: ModuleText, digest: str) -> tuple[Difference, ...]:
    """What is wrong with a module of a program as far as it shows without its model.

    `digest` is that of the schedule file as it is now.
    """
    known = read_map(stored.map) or {}
    differences: list[Difference] = []
    if edited_by_hand(stored):
        differences.append(_edited(name))
    if known.get("schedule") != digest:
        why = f"the schedule in {known.get('source')} changed"
        differences.append(_stale("DFS501", f"{name} is stale: {why}"))
    return tuple(differences)


def _listed(given: Given) -> str:
    """The parameters of a command line as they stand there."""
    options = [f"-P {name}={text}" for name, text in given.parameters.items()]
    return " ".join(options) or "no -P"


def may_be_lost(stored: ModuleText, current: ModuleText) -> bool:
    """Whether writing over a module could lose what compiling it does not make again.

    It is no generated module, one of a later format, edited by hand, without the map
    that would tell, or made from something else. A program that writes modules by
    itself leaves those alone, and a file in the map's place that is none.
    """
    if stored.module is None:
        return _foreign_map(stored)
    if stored.module == current.module:
        return False
    return (
        not stored.module.startswith(MARK)
        or read_map(stored.map) is None
        or edited_by_hand(stored)
        or unknown_format("", stored, current) is not None
        or of_another("", stored, current) is not None
    )


def unknown_format(
    name: str, stored: ModuleText, current: ModuleText
) -> Difference | None:
    """DFS505 when a module is of a later format than this version writes.

    Formats are numbers that only rise; an earlier one is merely stale.
    """
    old, new = read_map(stored.map) or {}, read_map(current.map) or {}
    format_, known = old.get("format"), new.get("format")
    if type(format_) is not int or type(known) is not int or format_ <= known:
        return None
    found = Diagnostic(
        "DFS505",
        f"{name} has format {format_}, and this version of dfsc knows {known}",
        helps=(
            "install the version of dfsc that made it, or a later one",
            "delete the module to have it written in the format of this version",
        ),
    )
    return Difference(State.LATER, found)


def of_another(name: str, stored: ModuleText, current: ModuleText) -> Difference | None:
    """DFS507 when one module was captured by torch.compile and the other traced.

    Each would call the other's stale for ever.
    """
    known = (read_map(stored.map) or {}).get("target")
    if known is None or made_by_a_program(stored) == made_by_a_program(current):
        return None
    message = (
        f"{name} is the module of {maker_of(stored)}, and {maker_of(current)} makes "
        "another one of this name"
    )
    return Difference(State.OF_ANOTHER, Diagnostic("DFS507", message))


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


def _graph_digests(text: str | None) -> dict[str, Any]:
    digests = (read_map(text) or {}).get("graph")
    return digests if isinstance(digests, dict) else {}


def _graph_changes(
    name: str, stored: ModuleText, current: ModuleText
) -> Iterator[Difference]:
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
    yield _stale("DFS502", message, notes=notes)


def _other_change(name: str, stored: ModuleText, current: ModuleText) -> Difference:
    if stored.module != current.module:
        old = (stored.module or "").splitlines()
        new = (current.module or "").splitlines()
        pairs = zip(old, new, strict=False)
        line = next(
            (n for n, (a, b) in enumerate(pairs, 1) if a != b),
            min(len(old), len(new)) + 1,
        )
        message = f"{name} is stale: dfsc writes line {line} differently now"
        return _stale("DFS501", message)
    maps = read_map(stored.map), read_map(current.map)
    if _without_places(maps[0]) == _without_places(maps[1]):
        what = "lines of the model's code that its map names"
        message = f"{name} is stale: {what} have changed"
        return _stale("DFS501", message)
    key, old_value, new_value = _first_difference(*maps)
    message = f"{name} is stale: its map has another `{key}`"
    return _stale("DFS501", message, notes=(f"was: {old_value}", f"is: {new_value}"))


def _without_places(document: Any) -> Any:
    """A map without the lines of the model's code."""
    operations = document.get("operations") if isinstance(document, Mapping) else None
    if not isinstance(operations, list):
        return document
    placed = [
        {key: value for key, value in each.items() if key != "source"}
        for each in operations
        if isinstance(each, Mapping)
    ]
    return {**document, "operations": placed}


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


def _foreign_map(stored: ModuleText) -> bool:
    """Whether what lies in a map's place, beside no module, is something else."""
    return stored.map is not None and "body" not in (read_map(stored.map) or {})


def _foreign(name: str) -> Difference:
    found = Diagnostic(
        code="DFS501",
        message=f"{name} is not a generated module",
        notes=(f"a generated module begins with '{MARK.strip()}'",),
    )
    return Difference(State.FOREIGN, found)


def _no_map(name: str) -> Difference:
    place = f"{name.removesuffix('.py')}.map.json"
    found = Diagnostic(
        code="DFS501",
        message=f"{place} is not the map of a generated module",
        notes=(f"it lies where {name}, which is not there yet, has its map",),
    )
    return Difference(State.FOREIGN, found)


def _edited(name: str) -> Difference:
    found = Diagnostic(
        code="DFS504",
        message=f"{name} was edited by hand",
        notes=("its bytes are not those that its map was written with",),
        helps=("change the schedule instead of the module",),
    )
    return Difference(State.EDITED, found)


def _stale(
    code: str, message: str, state: State = State.STALE, notes: tuple[str, ...] = ()
) -> Difference:
    return Difference(state, Diagnostic(code=code, message=message, notes=notes))
