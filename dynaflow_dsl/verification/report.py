"""What verification found, as data that renders to lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dynaflow_dsl.verification.recording import Fault


@dataclass(frozen=True, slots=True)
class Difference:
    """The first tensor in which two runs differ more than they may.

    `tensor` is `output` or the input's name, with `[k]` for one of several; `largest`
    is the largest difference over the largest magnitude of the reference.
    """

    tensor: str
    largest: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run of the module beside another run, for one batch.

    `tolerance` is None where every bit had to be equal; else it bounds the largest
    difference relative to the largest magnitude of the tensor it was found in.
    `largest` is over all tensors.
    """

    batch: int
    what: str
    against: str
    tolerance: float | None
    largest: float
    tensors: int
    difference: Difference | None

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
            verdict = (
                f"NOT equal {allowed}: {self.difference.tensor} differs by "
                f"{self.difference.largest:.1e}"
            )
        return (
            f"batch {self.batch}: {self.what} against {self.against}: {verdict}, "
            f"{self.tensors} tensors"
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """The faults of one recorded step.

    `concurrent` are pairs of steps of the schedule that were really unordered, by the
    labels of the module's map.
    """

    batch: int
    operations: int
    faults: tuple[Fault, ...]
    concurrent: tuple[tuple[str, str], ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.faults

    def __str__(self) -> str:
        verdict = "no race, no early free, joined"
        if self.faults:
            verdict = f"{len(self.faults)} faults"
        return f"batch {self.batch}: order of {self.operations} operations: {verdict}"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was compared and recorded for one executor."""

    module: str
    entry: str
    comparisons: tuple[Comparison, ...]
    recordings: tuple[Recorded, ...]

    @property
    def ok(self) -> bool:
        """Whether every comparison and every recording is fine."""
        return all(comparison.ok for comparison in self.comparisons) and all(
            recorded.ok for recorded in self.recordings
        )

    def lines(self) -> Iterator[str]:
        """The report as lines of text, faults under their recording."""
        yield f"{self.module}, entry {self.entry}: {'ok' if self.ok else 'FAILED'}"
        for comparison in self.comparisons:
            yield f"  {comparison}"
        for recorded in self.recordings:
            yield f"  {recorded}"
            for fault in recorded.faults:
                yield f"    {fault}"
            for first, second in recorded.concurrent:
                yield f"    unordered: {first} | {second}"

    def __str__(self) -> str:
        return "\n".join(self.lines())
