"""What the map of a stored module says of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dynaflow_dsl.cli.modules import ModuleText
from dynaflow_dsl.cli.options import Given
from dynaflow_dsl.resolve.model import Scalar


def read_map(text: str | None) -> dict[str, Any] | None:
    """The contents of a map; None when there is none or it is no JSON object."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def edited_by_hand(stored: ModuleText) -> bool:
    """Whether a module differs from the bytes that its map was written with."""
    known = read_map(stored.map)
    if stored.module is None or known is None:
        return False
    return known.get("body") != hashlib.sha256(stored.module.encode()).hexdigest()


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


# The target of a module whose model a program had in memory when it called `schedule`.
IN_MEMORY = "dynaflow_dsl.integrations.transformers:schedule"


def made_by_a_call(stored: ModuleText) -> bool:
    """Whether a module is of a model that a program had in memory for `schedule`."""
    target = stored_target(stored)
    return target is not None and target[0] == IN_MEMORY


def maker_of(stored: ModuleText) -> str:
    """What a module was made from beside its schedule, as part of a sentence."""
    if made_by_a_program(stored):
        return "a program's torch.compile"
    target = stored_target(stored)
    if target is None:
        return "another model"
    place, _, function = target[0].rpartition(":")
    if place.startswith("dynaflow_dsl.integrations."):
        return f"`{function}` of {place}"
    return f"the trace target {target[0]}"


def stored_given(stored: ModuleText) -> Given:
    """The parameters, facts and arguments of its model that a module was compiled with
    on a command line."""
    known = read_map(stored.map) or {}
    target = stored_target(stored)
    match known.get("given"):
        case {"parameters": dict(parameters), "facts": dict(facts)}:
            return Given(
                {str(name): str(text) for name, text in parameters.items()},
                {
                    str(name): value
                    for name, value in facts.items()
                    if isinstance(value, bool | int | float | str)
                },
                {target[0]: _arguments(known["given"])} if target is not None else {},
            )
    return Given()


def _arguments(given: Mapping[str, Any]) -> dict[str, Scalar]:
    arguments = given.get("arguments")
    return {
        str(name): value
        for name, value in (arguments if isinstance(arguments, dict) else {}).items()
        if isinstance(value, bool | int | float | str)
    }
