"""What verification found, as data that renders to lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dynaflow_dsl.runtime.distances import Distance
from dynaflow_dsl.verification.kernels import KernelTrial
from dynaflow_dsl.verification.recording import Fault
from dynaflow_dsl.verification.rows import RowTrial

# The number of rows of each phase.
Phases: TypeAlias = tuple[tuple[str, int], ...]


def step_size(batch: int, phases: Phases = (), dimension: str = "batch") -> str:
    """`batch 8`, or `tokens 8 (decode 3, prefill 5)`; all sizes may be fixed."""
    said = ", ".join(f"{name} {rows}" for name, rows in phases)
    size = f"{dimension} {batch}" if dimension else "fixed sizes"
    return f"{size} ({said})" if said else size


@dataclass(frozen=True, slots=True)
class Difference:
    """The first tensor in which two runs differ more than they may.

    `tensor` is `output` or the input's name, with `[k]` for one of several; `largest`
    is the largest difference over the largest magnitude of the reference, which counts
    as no less than rounding of the step's usual numbers makes it (see
    `runtime.distances`), and `absolute` the difference by itself.
    """

    tensor: str
    largest: float
    absolute: float

    def __str__(self) -> str:
        apart = Distance(self.absolute, self.largest)
        return f"{self.tensor} differs by {apart}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run of the module beside another run, for one batch.

    `tolerance` is None where every bit had to be equal; else it bounds the largest
    difference relative to the largest magnitude of the tensor it was found in.
    `largest` is over all `tensors`: so many `outputs` of the step, its `inputs` as the
    step left them, and, where it changes any, buffers of the model. `because` says why
    less than the usual was asked for. `phases` are the rows of each phase, for steps
    that are cut by phase. `dimension` is what `batch` is the size of, and empty where
    there is none.
    """

    batch: int
    what: str
    against: str
    tolerance: float | None
    largest: float
    tensors: int
    outputs: int
    inputs: int
    difference: Difference | None
    because: str = ""
    phases: Phases = ()
    dimension: str = "batch"

    @property
    def ok(self) -> bool:
        """Whether no tensor differs more than it may."""
        return self.difference is None

    def __str__(self) -> str:
        allowed = "bit for bit"
        if self.tolerance is not None:
            allowed = f"within {self.tolerance:.0e}"
        if self.difference is None:
            verdict = f"equal {allowed}"
            if self.tolerance is not None:
                verdict += f" (largest {self.largest:.1e})"
        else:
            verdict = f"NOT equal {allowed}: {self.difference}"
        because = f" ({self.because})" if self.because else ""
        size = step_size(self.batch, self.phases, self.dimension)
        return (
            f"{size}: {self.what} against {self.against}: {verdict}, "
            f"{self._compared()}{because}"
        )

    def _compared(self) -> str:
        """What the tensors are: `1 output, 3 inputs afterwards, 1 buffer`."""
        buffers = self.tensors - self.outputs - self.inputs
        said = [_counted(self.outputs, "output")]
        if self.inputs:
            said.append(f"{_counted(self.inputs, 'input')} afterwards")
        if buffers:
            said.append(_counted(buffers, "buffer"))
        return ", ".join(said)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass(frozen=True, slots=True)
class Recorded:
    """The faults of one recorded step.

    `concurrent` are pairs of steps of the schedule that were really unordered, by the
    labels of the module's map; `ordered` are pairs that the schedule claims to be
    unordered and that were not. `labelled` is False for a module that was edited: its
    lines then have no labels, and pairs of steps cannot be told.
    """

    batch: int
    operations: int
    faults: tuple[Fault, ...]
    concurrent: tuple[tuple[str, str], ...]
    ordered: tuple[tuple[str, str], ...] = ()
    labelled: bool = True
    phases: Phases = ()
    dimension: str = "batch"

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.faults and not self.ordered

    def __str__(self) -> str:
        verdict = "no race, no early free, joined"
        if self.faults:
            verdict = f"{len(self.faults)} faults"
        if self.ordered:
            verdict += f", {len(self.ordered)} claims that do not hold"
        size = step_size(self.batch, self.phases, self.dimension)
        return f"{size}: order of {self.operations} operations: {verdict}"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was compared and recorded for one executor.

    `failures` are runs that ended with an exception; `schedule` is empty where the
    module's name says it.
    """

    module: str
    entry: str
    comparisons: tuple[Comparison, ...]
    recordings: tuple[Recorded, ...]
    failures: tuple[str, ...] = ()
    schedule: str = ""
    kernels: tuple[KernelTrial, ...] = ()
    rows: tuple[RowTrial, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every run, every comparison and every recording is fine."""
        compared = all(comparison.ok for comparison in self.comparisons)
        recorded = all(recorded.ok for recorded in self.recordings)
        through = all(kernel.ok for kernel in self.kernels)
        apart = all(trial.ok for trial in self.rows)
        return compared and recorded and through and apart and not self.failures

    def lines(self) -> Iterator[str]:
        """The report as lines of text, faults under their recording."""
        place = [self.module, f"entry {self.entry}"]
        if self.schedule:
            place.insert(1, f"schedule {self.schedule}")
        yield f"{', '.join(place)}: {'ok' if self.ok else 'FAILED'}"
        for failure in self.failures:
            yield f"  {failure}"
        for kernel in self.kernels:
            yield f"  {kernel}"
        for trial in self.rows:
            yield f"  {trial}"
        for comparison in self.comparisons:
            yield f"  {comparison}"
        for recorded in self.recordings:
            yield f"  {recorded}"
            for fault in recorded.faults:
                yield f"    {fault}"
            if not recorded.labelled:
                yield "    claims of windows not checked: the module was edited"
            for first, second in recorded.ordered:
                yield f"    claimed, but ordered: {first} | {second}"
            for first, second in recorded.concurrent:
                yield f"    unordered: {first} | {second}"

    def __str__(self) -> str:
        return "\n".join(self.lines())
