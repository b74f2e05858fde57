"""For which sizes a graph of Dynamo holds, where the model's code decides by them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import product
from typing import Any, NoReturn, TypeAlias

import torch

from dynaflow_dsl.trace.failures import refuse

Bounds: TypeAlias = "tuple[int, int | None]"

# Sizes above the lowest at which conditions are tried, beside the highest.
_TRIED = (0, 1, 2, 3, 4, 5, 6, 7, 8, 62, 1021)

# How many sizes are tried one by one for bounds that a condition gives.
_MOST_SIZES = 2**14


def within_decisions(
    sizes: Mapping[str, torch.SymInt],
    symbols: Mapping[str, str],
    bounds: Mapping[str, Bounds],
    given: Collection[str],
) -> dict[str, Bounds]:
    """The bounds within which all conditions hold that Dynamo put on the sizes.

    `sizes` are open axes by their symbols, and `symbols` the dimensions that these are.
    A condition such as `tokens <= 64`, however it is written, bounds its dimension, as
    Dynamo's own ranges do: it compiles another graph for the others. Refuses a
    condition that is no bound, since a module has none, and one that contradicts bounds
    that the caller has `given`.
    """
    found = dict(bounds)
    for condition, names in _conditions(sizes, symbols):
        free = condition.free_symbols
        tried = [_tried(*found[name]) for name in names]
        for chosen in (dict(zip(names, one, strict=True)) for one in product(*tried)):
            if not _fails(condition, {s: chosen[symbols[str(s)]] for s in free}):
                continue
            narrow: Bounds | None = None
            if len(names) == 1:
                size = next(sizes[s] for s in map(str, free) if s in sizes)
                narrow = _bounds_of(condition, found[names[0]], size, chosen[names[0]])
            if narrow is None or names[0] in given:
                _refuse(condition, symbols, chosen, narrow)
            found[names[0]] = narrow
            break
    return found


def _conditions(
    sizes: Mapping[str, torch.SymInt], symbols: Mapping[str, str]
) -> Iterator[tuple[Any, list[str]]]:
    """Conditions on named sizes alone, with the dimensions that they speak of."""
    guards = next((size.node.shape_env.guards for size in sizes.values()), ())
    for guard in guards:
        free = list(map(str, guard.expr.free_symbols))
        if free and all(symbol in symbols for symbol in free):
            yield guard.expr, sorted({symbols[symbol] for symbol in free})


def _bounds_of(
    condition: Any, within: Bounds, size: torch.SymInt, failing: int
) -> Bounds | None:
    """The sizes from the lowest or to the highest at which a condition holds.

    Those around the size of this call, if all of them are such; `failing` is a size at
    which it does not hold. None for a condition that is no such bound.
    """
    low, high = within
    hint = size.node.hint
    if hint is None:
        return None

    def holds(value: int) -> bool:
        return not _fails(condition, dict.fromkeys(condition.free_symbols, value))

    good, bad = int(hint), failing
    if not holds(good):
        return None
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    if bad > good:
        if good - low < _MOST_SIZES and all(map(holds, range(low, good + 1))):
            return low, good
    elif all(holds(value) for value in _tried(good, high)):
        return good, high
    return None


def _refuse(
    condition: Any,
    symbols: Mapping[str, str],
    chosen: Mapping[str, int],
    narrow: Bounds | None,
) -> NoReturn:
    text = str(condition)
    for symbol in sorted(map(str, condition.free_symbols), reverse=True):
        text = text.replace(symbol, symbols[symbol])
    bounds = "..."
    if narrow is not None:
        bounds = f'{{"{next(iter(chosen))}": {narrow}}}'
    refuse(
        f"the graph holds only where {text}: the model's code decides by it what runs",
        notes=(f"it does not hold for {_listed(chosen)}",),
        helps=(
            "write the code for any size, or give the dimension bounds within which "
            f'it holds: options={{"dimensions": {bounds}}}',
        ),
    )


def _fails(condition: Any, numbers: Mapping[Any, int]) -> bool:
    answer = condition.subs(numbers)
    return answer is not None and bool(answer == False)  # noqa: E712 - sympy's false


def _tried(low: int, high: int | None) -> list[int]:
    below = (low + step for step in _TRIED)
    if high is None:
        return list(below)
    return [*(size for size in below if size < high), high]


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
