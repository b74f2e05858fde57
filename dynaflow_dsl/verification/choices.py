"""Runs the steps of a module that chooses by size, on both sides of every border."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_map

from dynaflow_dsl.runtime.select import Selected
from dynaflow_dsl.verification.report import Comparison
from dynaflow_dsl.verification.results import compare, tensors_of
from dynaflow_dsl.verification.state import ModelState
from dynaflow_dsl.verification.verify import modules_of

Sizes: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ChosenStep:
    """What a step of some sizes should run, what it ran, and what that gave.

    `line` is the line of the `select` that takes the step. `comparison` is None for
    sizes that were not run.
    """

    sizes: tuple[tuple[str, int], ...]
    line: str
    expected: str
    chosen: str
    comparison: Comparison | None

    @property
    def ok(self) -> bool:
        """Whether the right schedule ran, and gave what the model gives."""
        fine = self.comparison is None or self.comparison.ok
        return fine and self.expected == self.chosen

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes)
        text = f"{sizes}: {self.chosen}"
        if self.chosen != self.expected:
            text += f", and NOT {self.expected} as in {self.line}"
        if self.comparison is None:
            return f"{text}, not run"
        if self.comparison.difference is None:
            return f"{text}, equal to the model (largest {self.comparison.largest:.1e})"
        return f"{text}, NOT equal to the model: {self.comparison.difference}"


@dataclass(frozen=True, slots=True)
class ChoiceReport:
    """All steps of one entry that were tried."""

    module: str
    entry: str
    steps: tuple[ChosenStep, ...]

    @property
    def ok(self) -> bool:
        """Whether every step is fine."""
        return all(step.ok for step in self.steps)

    def lines(self) -> Iterator[str]:
        """The report as lines of text."""
        verdict = "ok" if self.ok else "FAILED"
        yield f"{self.module}, entry {self.entry}, chosen by size: {verdict}"
        for step in self.steps:
            yield f"  {step}"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def verify_choices(
    selected: Selected,
    module: str,
    model: torch.nn.Module,
    make_arguments: Callable[[Sizes], Sequence[Any]],
    expected: Callable[[Sizes], tuple[str, str]],
    tried: Sequence[Sizes],
    *,
    most_rows: int,
    phases: Sequence[str] = (),
    adapter: Callable[..., Any] | None = None,
    seed: int = 0,
) -> ChoiceReport:
    """Compare what steps choose with what the schedule file says, and run them.

    `expected(sizes)` gives the name of the schedule and the line that chooses it, from
    the file's own words. `tried` are the sizes of the steps; those with a size of more
    than `most_rows` are not run. `phases` are sizes that say where rows are cut. What
    runs is compared with the model within the tolerance of its dtype.
    """
    called = adapter if adapter is not None else model
    for executor in selected.executors.values():
        # A wrong kernel is a step that differs, and no end of all others.
        executor.compare_no_kernels()
    state = ModelState(*modules_of(called, model))
    steps = []
    for sizes in tried:
        name, line = expected(sizes)
        comparison = None
        if max(sizes.values(), default=1) <= most_rows:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                arguments = make_arguments(sizes)
            rows = {name: sizes[name] for name in phases}
            step = partial(selected, phases=rows) if rows else selected
            given = _run(step, arguments, state)
            wanted = _run(called, arguments, state)
            batch = next(iter(sizes.values()), 1)
            comparison = compare(
                batch, (), "chosen", given, "model", wanted, exact=False
            )
        steps.append(
            ChosenStep(
                tuple(sizes.items()),
                line,
                name,
                selected.choice(phases=None, **sizes),
                comparison,
            )
        )
    return ChoiceReport(module, selected.entry, tuple(steps))


def _run(
    step: Callable[..., Any], arguments: Sequence[Any], state: ModelState
) -> list[torch.Tensor]:
    """Outputs and inputs after a step on copies of its arguments."""
    copies = tree_map(
        lambda one: one.clone() if isinstance(one, torch.Tensor) else one,
        tuple(arguments),
    )
    try:
        with torch.no_grad():
            made = [one.clone() for one in tensors_of(step(*copies))]
        return [*made, *tensors_of(copies)]
    finally:
        state.restore()
