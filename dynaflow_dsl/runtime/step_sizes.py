"""The sizes of a step: those of its arguments, or those that a caller names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynaflow_dsl.runtime.errors import InputError
from dynaflow_dsl.runtime.inputs import Bounds, InputCheck
from dynaflow_dsl.runtime.model import PhaseSplit
from dynaflow_dsl.runtime.phases import Phases, check_phases, phases_missing


class StepSizes:
    """Sizes of the dimensions and phases of an entry's steps.

    `dimensions` holds inclusive bounds, and `phases` those that rows of a dimension
    belong to. A step that is `cut` by phase has to be told how many rows each has.
    """

    def __init__(
        self,
        check: InputCheck,
        dimensions: Bounds,
        phases: Phases,
        cut: PhaseSplit | None,
    ) -> None:
        self._check = check
        self._dimensions = dimensions
        self._phases = phases
        self._cut = cut

    def of(
        self, arguments: Sequence[Any], phases: Mapping[str, int] | None
    ) -> Mapping[str, int]:
        """The sizes of a step with these arguments. Raises InputError (DFS802)."""
        return self._with_phases(self._check(arguments), phases)

    def named(
        self, given: Mapping[str, Any], phases: Mapping[str, int] | None
    ) -> Mapping[str, int]:
        """All sizes, from those that a caller names: see `Executor.named_sizes`."""
        sizes = dict(given)
        if phases is not None and not self._phases:
            sizes["phases"] = phases
            phases = None
        rows = {
            name: sizes.pop(name)
            for listed in self._phases.values()
            for name in listed
            if name in sizes
        }
        if rows and phases is not None:
            raise InputError(
                "DFS802",
                f"the rows of `{next(iter(rows))}` are given twice: leave them to "
                "`phases`.",
            )
        phases = rows or phases
        if phases is not None:
            checked = check_phases(phases, self._phases, sizes)
            for dimension, listed in self._phases.items():
                sizes.setdefault(dimension, sum(checked[name] for name in listed))
        elif sizes.keys() <= self._dimensions.keys():
            # Says what is missing before anything else that is.
            self._with_phases(sizes, None)
        self._check.sizes(sizes)
        return self._with_phases(sizes, phases)

    def _with_phases(
        self, sizes: Mapping[str, int], phases: Mapping[str, int] | None
    ) -> Mapping[str, int]:
        if phases is not None and self._phases:
            return {**sizes, **check_phases(phases, self._phases, sizes)}
        if self._cut is not None:
            raise phases_missing(self._phases, self._cut.dimension)
        return sizes
