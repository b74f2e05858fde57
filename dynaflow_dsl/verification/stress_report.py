"""What repeated runs with delays found, as data that renders to lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dynaflow_dsl.verification.report import step_size

# The share of unordered pairs that should be seen in both orders.
ENOUGH = 0.9


@dataclass(frozen=True, slots=True)
class StepPair:
    """Two steps on different streams, with their lines in the schedule file (or 0)."""

    first: str
    first_stream: str
    first_line: int
    second: str
    second_stream: str
    second_line: int

    def __str__(self) -> str:
        one = _placed(self.first, self.first_stream, self.first_line)
        other = _placed(self.second, self.second_stream, self.second_line)
        return f"{one} and {other}"


def _placed(step: str, stream: str, line: int) -> str:
    return f"{step} on {stream}" + (f" (line {line})" if line else "")


@dataclass(frozen=True, slots=True)
class StressFailure:
    """A run that gave something else; run 0 is the one without delays.

    `what` says in which tensor and by how much, or what was raised; `pair` are the
    steps whose order made the difference, None where it did not come back when it was
    looked for.
    """

    run: int
    what: str
    pair: StepPair | None

    def __str__(self) -> str:
        said = f"run {self.run}: {self.what}"
        if self.pair is None:
            return f"{said}; no order of two steps brings it back"
        return f"{said}; it depends on the order of {self.pair}"


@dataclass(frozen=True, slots=True)
class StressRun:
    """All runs of one way to run a step.

    `pairs` counts the pairs of steps on different streams without a path of waits,
    `both` those of them that were seen in either order; `missed` names the others.
    """

    way: str
    trials: int
    steps: int
    pairs: int
    both: int
    missed: tuple[StepPair, ...]
    failures: tuple[StressFailure, ...]

    @property
    def share(self) -> float:
        """The share of unordered pairs that were seen in both orders."""
        return self.both / self.pairs if self.pairs else 1.0

    def lines(self) -> Iterator[str]:
        """One line for the runs, and one for each difference."""
        verdict = "NOT equal" if self.failures else "equal"
        yield (
            f"{self.way}, {self.trials} runs with delays before {self.steps} steps: "
            f"{verdict} to one stream; {self.both} of {self.pairs} unordered pairs "
            f"seen in both orders ({self.share:.0%})"
        )
        for failure in self.failures:
            yield f"  {failure}"
        if self.share < ENOUGH and not self.failures:
            yield f"  fewer than {ENOUGH:.0%}: ask for more runs; among those missing:"
            for pair in self.missed[:3]:
                yield f"    {pair}"


@dataclass(frozen=True, slots=True)
class StressReport:
    """Every way in which a step of one size was run; `skipped` are the others."""

    module: str
    entry: str
    schedule: str
    batch: int
    runs: tuple[StressRun, ...]
    skipped: tuple[str, ...] = ()
    spread: str = ""
    dimension: str = "batch"

    @property
    def ok(self) -> bool:
        """Whether no run gave anything else."""
        return all(not run.failures for run in self.runs)

    def lines(self) -> Iterator[str]:
        """The report as lines of text."""
        place = [self.module, f"entry {self.entry}"]
        if self.schedule:
            place.insert(1, f"schedule {self.schedule}")
        verdict = "ok" if self.ok else "FAILED"
        size = step_size(self.batch, dimension=self.dimension)
        yield f"{', '.join(place)}, stress at {size}: {verdict}"
        if self.spread:
            yield f"  {self.spread}"
        for run in self.runs:
            yield from (f"  {line}" for line in run.lines())
        yield from (f"  {line}" for line in self.skipped)

    def __str__(self) -> str:
        return "\n".join(self.lines())
