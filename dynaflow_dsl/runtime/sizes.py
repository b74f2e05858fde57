"""Which sizes a compiled part holds for, and which ones to compile it for again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Protocol, TypeVar

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.inductor import SIZE_FUNCTIONS, USUAL_SIZE
from dynaflow_dsl.runtime.inputs import Bounds

# How often one part is compiled at most.
MOST = 4

# Compilers change their mind near powers of two, and by remainders.
_POWERS = [2**exponent for exponent in range(1, 14)]
_SIZES = sorted({*range(2, 18), *_POWERS, *(one + 1 for one in _POWERS)})
_MOST_SAMPLES = 1000


class Conditional(Protocol):
    """Something that holds under conditions on sizes."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """Python conditions over the names of dimensions."""


Compiled = TypeVar("Compiled", bound=Conditional)


def all_hold(conditions: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Whether every condition is true; one that cannot be decided is not."""
    return all(_holds(condition, sizes) for condition in conditions)


def sample_sizes(dimensions: Sequence[str], bounds: Bounds) -> Iterator[dict[str, int]]:
    """Combinations of sizes within bounds, at least 2, that stand for all."""
    if not dimensions:
        return
    allowed = []
    for name in dimensions:
        low, high = bounds.get(name, (1, None))
        fitting = [size for size in _SIZES if low <= size <= (high or size)]
        allowed.append(fitting or [max(low, 2)])
    for sizes in islice(product(*allowed), _MOST_SAMPLES):
        yield dict(zip(dimensions, sizes, strict=True))


def for_other_sizes(
    first: Compiled,
    make: Callable[[Mapping[str, int]], Compiled],
    sampled: Sequence[Mapping[str, int]],
) -> Iterator[Compiled]:
    """`first`, and what `make` gives for sampled sizes that nothing so far holds for.

    At most MOST in all. Stops where conditions do not even hold for the sizes that they
    were made for, or where sizes cannot be compiled for.
    """
    yield first
    usual = {name: USUAL_SIZE for sizes in sampled[:1] for name in sizes}
    if not first.conditions or not all_hold(first.conditions, usual):
        return
    made = [first]
    for sizes in sampled:
        if any(all_hold(one.conditions, sizes) for one in made):
            continue
        try:
            other = make(sizes)
        except LoadError:
            return
        if not all_hold(other.conditions, sizes):
            return
        yield other
        made.append(other)
        if len(made) == MOST:
            return


def _holds(condition: str, sizes: Mapping[str, int]) -> bool:
    try:
        return bool(eval(condition, {**SIZE_FUNCTIONS, **sizes}))
    except (NameError, ArithmeticError, TypeError, ValueError):
        # A condition that cannot be decided is one that nobody checked.
        return False
