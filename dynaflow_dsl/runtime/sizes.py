"""Which sizes a compiled part holds for, and which ones to compile it for again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Generic, Protocol, TypeVar

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.inductor import COMPILING, SIZE_FUNCTIONS, USUAL_SIZE
from dynaflow_dsl.runtime.inputs import Bounds

# How often one part is compiled at most.
MOST = 4

# Compilers change their mind near powers of two, and by remainders.
_POWERS = [2**exponent for exponent in range(1, 14)]
_SIZES = sorted({*range(2, 18), *_POWERS, *(one + 1 for one in _POWERS)})
_MOST_SAMPLES = 1000

# Larger sizes of a dimension without an upper bound are compiled for when a step first
# has them: few have, and compilers index large tensors in another way.
_LARGEST = 1024


class Conditional(Protocol):
    """Something that holds under conditions on sizes."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """Python conditions over the names of dimensions."""


Compiled = TypeVar("Compiled", bound=Conditional)


class Compilations(Generic[Compiled]):
    """What one part was compiled to, for more sizes as they come.

    `make` compiles for sizes, at least 2, by dimension; for usual ones without. Parts
    are compiled at most MOST times, and no more where conditions do not even hold for
    the sizes that they were made for, or where sizes cannot be compiled for. Raises
    LoadError where the part cannot be compiled at all.
    """

    def __init__(
        self,
        make: Callable[[Mapping[str, int]], Compiled],
        sampled: Sequence[Mapping[str, int]] = (),
    ) -> None:
        first = make({})
        self._make = make
        self._ended = False
        self.made = [first]
        usual = {name: USUAL_SIZE for sizes in sampled[:1] for name in sizes}
        if not first.conditions or not all_hold(first.conditions, usual):
            self._ended = True
            return
        for sizes in sampled:
            if self.fitting(sizes) is None:
                break

    def known(self, sizes: Mapping[str, int]) -> Compiled | None:
        """What was compiled for `sizes` so far, None if nothing was."""
        fitting = (one for one in self.made if all_hold(one.conditions, sizes))
        return next(fitting, None)

    def fitting(self, sizes: Mapping[str, int]) -> Compiled | None:
        """What was compiled for `sizes`, now if need be; None where nothing can be."""
        known = self.known(sizes)
        if known is not None:
            return known
        # Streams of the CPU may ask at once, and compilers are set up process-wide.
        with COMPILING:
            return self._made_for(sizes)

    def _made_for(self, sizes: Mapping[str, int]) -> Compiled | None:
        known = self.known(sizes)
        if known is not None:
            return known
        if self._ended or len(self.made) == MOST:
            return None
        try:
            other = self._make({name: max(size, 2) for name, size in sizes.items()})
        except LoadError:
            self._ended = True
            return None
        if not all_hold(other.conditions, sizes):
            self._ended = True
            return None
        self.made.append(other)
        return other


def all_hold(conditions: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Whether every condition is true; one that cannot be decided is not."""
    return all(_holds(condition, sizes) for condition in conditions)


def sample_sizes(
    dimensions: Sequence[str],
    bounds: Bounds,
    captured: Mapping[str, Sequence[int]] | None = None,
) -> Iterator[dict[str, int]]:
    """Combinations of sizes within bounds, at least 2, that stand for all others.

    Without an upper bound there are no large ones, apart from those `captured`.
    """
    if not dimensions:
        return
    allowed = []
    for name in dimensions:
        low, high = bounds.get(name, (1, None))
        own = [size for size in (captured or {}).get(name, ()) if size > 1]
        most = high or max(low, _LARGEST, *own, 0)
        sizes_of = sorted({*_SIZES, *own})
        fitting = [size for size in sizes_of if low <= size <= most]
        allowed.append(fitting or [max(low, 2)])
    for sizes in islice(product(*allowed), _MOST_SAMPLES):
        yield dict(zip(dimensions, sizes, strict=True))


def _holds(condition: str, sizes: Mapping[str, int]) -> bool:
    try:
        return bool(eval(condition, {**SIZE_FUNCTIONS, **sizes}))
    except (NameError, ArithmeticError, TypeError, ValueError):
        # A condition that cannot be decided is one that nobody checked.
        return False
