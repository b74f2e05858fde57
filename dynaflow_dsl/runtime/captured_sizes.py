"""The sizes that steps are captured at, and which of them a step can run as."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import NamedTuple, TypeAlias

from dynaflow_dsl.runtime.model import Capture
from dynaflow_dsl.runtime.report import described

Sizes: TypeAlias = tuple[int, ...]


class Wanted(NamedTuple):
    """Which step a graph is of: sizes, and whether a `select` wants it unsplit."""

    unsplit: bool
    sizes: Sizes


class CapturedSizes:
    """The sizes of a `capture`: numbers in the order of its `dimensions`.

    Those of a dimension that goes by phases are of its phases; `phases` are all of
    them. `combinations` are the sizes that are captured.
    """

    def __init__(self, capture: Capture) -> None:
        self.dimensions = tuple(capture.sizes)
        self.phases = tuple(n for names in capture.phases.values() for n in names)
        self.combinations = capture.combinations()
        self._capture = capture

    def wanted(self, sizes: Mapping[str, int], *, unsplit: bool) -> Wanted:
        """The step of these sizes, which have all dimensions."""
        return Wanted(unsplit, tuple([sizes[name] for name in self.dimensions]))

    def are_in(self, sizes: Mapping[str, int]) -> bool:
        """Whether `sizes` has all dimensions: not where phases are left unsaid."""
        return sizes.keys() >= set(self.dimensions)

    def named(self, sizes: Sizes) -> dict[str, int]:
        """Sizes of phases, and of the dimensions that they add up to."""
        named = dict(zip(self.dimensions, sizes, strict=True))
        return {**named, **self._capture.complete(sizes)}

    def rows(self, sizes: Sizes) -> int:
        """How large a step is, all dimensions together."""
        return prod(self._capture.complete(sizes).values())

    def described(self, sizes: Sizes) -> str:
        """`batch = 64, seq = 512`."""
        return described(self.dimensions, sizes)

    def standing_for(self, wanted: Wanted, refused: Collection[Wanted]) -> list[Wanted]:
        """The captured steps that a step can run as, but for those that are refused.

        They are as large as it is, or larger where the schedule pads.
        """
        padding = self._capture.padding
        return [
            one
            for captured in self.combinations
            if (one := Wanted(wanted.unsplit, captured)) not in refused
            and all(
                size == least or (size > least and name in padding)
                for name, size, least in zip(
                    self.dimensions, captured, wanted.sizes, strict=True
                )
            )
        ]
