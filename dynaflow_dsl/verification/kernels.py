"""Compares kernels with the text of the parts that run through them, call by call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dynaflow_dsl.runtime.distances import (
    INFINITE,
    TOLERANCES,
    distance,
    usual_magnitude,
)
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.model import Part
from dynaflow_dsl.runtime.module_map import ModuleMap, read_map
from dynaflow_dsl.runtime.notes import step_now
from dynaflow_dsl.verification.references import watched_calls


@dataclass(slots=True)
class KernelTrial:
    """All calls of one kernel in the steps that were run, `by_reference` of which gave
    what its reference gave: the kernel did not run in them.

    `largest` is the largest difference over the largest magnitude of a tensor,
    `problem` what was wrong with the first call that was, and `place` which step made
    it, of which layer, with its line in the schedule.
    """

    part: str
    kernel: str
    calls: int = 0
    by_reference: int = 0
    largest: float = 0.0
    problem: str | None = None
    place: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every call gave what the part's text gives, if by its reference."""
        return self.problem is None and self.calls > 0

    def __str__(self) -> str:
        said = f"part {self.part} through kernel {self.kernel}"
        if self.problem is not None:
            return f"{said}: NOT equal to its text in {self.place}: {self.problem}"
        if not self.calls:
            return f"{said}: never called, so not compared"
        ran = self.calls - self.by_reference
        if not ran:
            return (
                f"{said}: never ran here, so not compared: its reference did, in all "
                f"{self.calls} calls"
            )
        others = f"; {self.by_reference} more ran its reference"
        return (
            f"{said}: {ran} calls equal to its text within tolerance (largest "
            f"{self.largest:.1e}){others if self.by_reference else ''}"
        )


@dataclass(slots=True)
class KernelTrials:
    """Stands in for the kernels of an executor, and compares each call."""

    trials: list[KernelTrial] = field(default_factory=list)

    def watch(self, executor: Executor) -> None:
        """Compare every call of a kernel that the executor's step makes from now on.

        The kernel's own results go on. The executor itself compares none, which would
        end the step.
        """
        executor.compare_no_kernels()
        file = type(executor).step.__code__.co_filename
        module_map = read_map(Path(file))
        for name, part in executor.parts().items():
            if part.kernel:
                trial = KernelTrial(part.instead_of, part.kernel)
                self.trials.append(trial)
                text = getattr(executor, part.instead_of)
                given = getattr(executor, name)
                place = partial(_place, file, module_map, part)
                setattr(executor, name, _watched(trial, text, given, place))


def _place(file: str, module_map: ModuleMap, part: Part, position: int) -> str:
    return step_now(file, module_map, part.instead_of, part.layers[position])


def _watched(
    trial: KernelTrial,
    text: Callable[..., Any],
    kernel: Callable[..., Any],
    place: Callable[[int], str],
) -> Callable[..., Any]:
    def call(position: int, *arguments: torch.Tensor) -> Any:
        with torch.utils._python_dispatch._disable_current_modes():
            copies = [one.clone() for one in arguments]
            expected = _listed(text(position, *copies))
        with watched_calls() as calls:
            made = kernel(position, *arguments)
        trial.by_reference += calls.without_kernel
        with torch.utils._python_dispatch._disable_current_modes():
            problem = _judge(trial, _listed(made), expected, arguments, copies)
        if trial.problem is None and problem is not None:
            trial.problem, trial.place = problem, place(position)
        return made

    return call


def _judge(
    trial: KernelTrial,
    made: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    arguments: Sequence[torch.Tensor],
    copies: Sequence[torch.Tensor],
) -> str | None:
    """Count a call; what is wrong with it, None where nothing is."""
    trial.calls += 1
    problem = _other_layout(made, expected, arguments)
    pairs = [
        (f"{what} {k}", one, other)
        for what, ours, theirs in (
            ("result", made, expected),
            ("input", arguments, copies),
        )
        for k, (one, other) in enumerate(zip(ours, theirs, strict=False))
    ]
    if problem is None:
        around = usual_magnitude([*expected, *copies])
        for label, one, other in pairs:
            found = distance(one, other, around)
            trial.largest = max(trial.largest, found.relative)
            if found.relative > TOLERANCES.get(other.dtype, 0.0):
                apart = f" by {found}" if found != INFINITE else ""
                return f"{label} differs{apart}"
    return problem


def _other_layout(
    made: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    arguments: Sequence[torch.Tensor],
) -> str | None:
    """What a reader of the results would trip over, whatever the numbers are."""
    if len(made) != len(expected):
        return f"it returns {len(made)} tensors instead of {len(expected)}"
    storages = {one.untyped_storage().data_ptr() for one in arguments}
    for k, (one, other) in enumerate(zip(made, expected, strict=True)):
        if one.dtype != other.dtype:
            return f"result {k} is {one.dtype} instead of {other.dtype}"
        if one.shape != other.shape or one.stride() != other.stride():
            return f"result {k} has another shape or other strides"
        if one.untyped_storage().data_ptr() in storages:
            return f"result {k} shares memory with an argument"
    return None


def _listed(result: Any) -> list[torch.Tensor]:
    listed = result if isinstance(result, tuple | list) else [result]
    return [one for one in listed if isinstance(one, torch.Tensor)]
