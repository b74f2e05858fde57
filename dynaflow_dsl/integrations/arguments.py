"""Arguments of `schedule`, checked before anything is made of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from dynaflow_dsl.cli.options import Given, write_scalar
from dynaflow_dsl.integrations.errors import ScheduleError

_CHECKS = ("quick", "full", "none")


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(each, bool | int | float | str)
        for name, each in value.items()
    )


# What each argument may be beside None, and how that is said.
_WANTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "schedule": (
        lambda value: _is_path(value) or isinstance(value, ModuleType),
        "the path of a .dfs file, or a generated module",
    ),
    "capacity": (_is_count, "a whole number of places, such as capacity=256"),
    "sequence": (_is_count, "a whole number of tokens, such as sequence=64"),
    "folder": (_is_path, "the path of a folder"),
    "cache": (_is_path, "the path of a folder"),
    "parameters": (
        _is_table,
        'a dictionary of numbers, texts and truth values, such as {"ways": 3}',
    ),
    "facts": (
        _is_table,
        'a dictionary of numbers, texts and truth values, such as {"tp_size": 2}',
    ),
    "check": (_CHECKS.__contains__, "one of " + ", ".join(map(repr, _CHECKS))),
}
_FLAGS = ("write", "strict", "compile", "capture")


def check_arguments(**given: object) -> None:
    """Raise ScheduleError (DFS830) for the first argument of another kind.

    None is right for those that may be left out, which are all but flags, the schedule
    and what is checked.
    """
    for name, value in given.items():
        if name in _FLAGS:
            fits, wanted = isinstance(value, bool), "True or False"
        else:
            is_right, wanted = _WANTED[name]
            left_out = value is None and name not in ("schedule", "check")
            fits = left_out or is_right(value)
        if not fits:
            raise ScheduleError(
                "DFS830", f"`{name}` is {value!r}; it must be {wanted}."
            )


def given_by(
    parameters: Mapping[str, Any] | None, facts: Mapping[str, Any] | None
) -> Given:
    """Parameters and facts as a command line gives them."""
    texts = {name: write_scalar(each) for name, each in (parameters or {}).items()}
    return Given(texts, dict(facts or {}))
