"""The rows of each phase of a step, as its caller says them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from dynaflow_dsl.runtime.errors import InputError

# The phases of each dimension that has some, in the order of their rows.
Phases: TypeAlias = Mapping[str, Sequence[str]]


def check_phases(
    given: Any, phases: Phases, sizes: Mapping[str, int]
) -> dict[str, int]:
    """The number of rows of each phase; InputError (DFS802) where they cannot be.

    `sizes` are those of the dimensions, which the rows of their phases add up to; one
    that is left out is as large as they say.
    """
    names = [name for listed in phases.values() for name in listed]
    if not isinstance(given, Mapping):
        raise InputError(
            "DFS802",
            f"`phases` is a {type(given).__name__}, and must say how many rows each "
            f"phase has: {_example(phases)}.",
        )
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            way = f"did you mean `{near[0]}`?" if near else f"there are {_and(names)}."
            raise InputError("DFS802", f"`phases` has no phase {name!r}: {way}")
    if missing := [name for name in names if name not in given]:
        raise InputError(
            "DFS802",
            f"`phases` does not say how many rows {_and(missing)} has: "
            f"{_example(phases)}; a phase may have 0.",
        )
    for name, rows in given.items():
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
            raise InputError(
                "DFS802",
                f"`phases` has {rows!r} rows of `{name}`; it must be a whole number, "
                "0 or more.",
            )
    for dimension, listed in phases.items():
        if [name for name in given if name in listed] != list(listed):
            raise InputError(
                "DFS802",
                f"the rows of {_and(listed)} follow each other in `{dimension}` in "
                f"this order, and `phases` has another: {_example(phases)}.",
            )
        total = sum(given[name] for name in listed)
        if total != sizes.get(dimension, total):
            said = ", ".join(f"{name} = {given[name]}" for name in listed)
            raise InputError(
                "DFS802",
                f"`phases` has {said}, {total} rows in all, and {dimension} = "
                f"{sizes[dimension]!r} in the step.",
            )
    return {name: given[name] for name in names}


def phases_missing(phases: Phases, dimension: str) -> InputError:
    """For a step that is cut by phase and was not told where."""
    return InputError(
        "DFS802",
        f"this step is cut into {_and(phases[dimension])}, and nothing says how many "
        f"rows of `{dimension}` each has: call it with {_example(phases)}.",
    )


def _example(phases: Phases) -> str:
    """How the argument is written; the numbers stand for any."""
    names = [name for listed in phases.values() for name in listed]
    rows = ", ".join(f'"{name}": {k}' for k, name in enumerate(names, start=1))
    return f"`phases={{{rows}}}`"


def _and(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    if len(quoted) == 1:
        return quoted[0]
    return f"{', '.join(quoted[:-1])} and {quoted[-1]}"
