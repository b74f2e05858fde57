"""Several steps of a model in its own loop, scheduled against untouched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

# What `TraceSpec.trial` is: (steps by entry, rows, seed) to what they make and what the
# untouched model makes.
Trial: TypeAlias = Callable[
    [Mapping[str, Callable[..., Any]], int, int], tuple[torch.Tensor, torch.Tensor]
]


@dataclass(frozen=True, slots=True)
class TrialRun:
    """One run of the loop.

    `distinct` is the least number of different values in a row of the untouched model's
    result: a constant row proves little.
    """

    rows: int
    seed: int
    length: int
    distinct: int
    wrong_rows: int

    @property
    def ok(self) -> bool:
        """Whether every row is equal."""
        return self.wrong_rows == 0

    @property
    def repeats(self) -> bool:
        """Whether a row of several tokens is one token over and over."""
        return self.length > 1 and self.distinct == 1

    def __str__(self) -> str:
        verdict = f"equal, each with {self.distinct} or more different tokens"
        if self.repeats:
            verdict = "equal, but there is a row that repeats one token"
        if self.wrong_rows:
            verdict = f"NOT equal in {self.wrong_rows} rows"
        return f"{self.rows} rows of {self.length} tokens, seed {self.seed}: {verdict}"


@dataclass(frozen=True, slots=True)
class TrialReport:
    """All runs of one module in the model's own loop.

    `skipped` says why there are none, where equal results cannot be expected.
    """

    entries: tuple[str, ...]
    runs: tuple[TrialRun, ...]
    skipped: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every run is fine."""
        return all(run.ok for run in self.runs)

    def lines(self) -> Iterator[str]:
        """The report as lines of text."""
        scheduled = " and ".join(self.entries)
        if self.skipped is not None:
            yield (
                f"the model's own loop with {scheduled} scheduled: not run, since "
                f"{self.skipped}"
            )
            return
        verdict = "ok" if self.ok else "FAILED"
        yield f"the model's own loop with {scheduled} scheduled: {verdict}"
        for run in self.runs:
            yield f"  {run}"
        if any(run.ok and run.repeats for run in self.runs):
            yield (
                "  warning: a row that repeats one token proves little, since a wrong "
                "step may choose it too; other weights or another prompt say more"
            )

    def __str__(self) -> str:
        return "\n".join(self.lines())


def run_trial(
    trial: Trial,
    steps: Mapping[str, Callable[..., Any]],
    rows: Sequence[int],
    seeds: Sequence[int] = (0,),
) -> TrialReport:
    """Run the loop for each number of rows and each seed.

    A trial may have an attribute `skipped`: a reason not to run it, or None.
    """
    skipped = getattr(trial, "skipped", None)
    if isinstance(skipped, str):
        return TrialReport(tuple(steps), (), skipped)
    runs = []
    for seed in seeds:
        for count in rows:
            made, expected = trial(steps, count, seed)
            runs.append(_judge(made, expected, count, seed))
    return TrialReport(tuple(steps), tuple(runs))


def _judge(
    made: torch.Tensor, expected: torch.Tensor, rows: int, seed: int
) -> TrialRun:
    distinct = min((len(set(row.tolist())) for row in expected), default=0)
    if made.shape != expected.shape:
        return TrialRun(rows, seed, expected.shape[-1], distinct, rows)
    different = (made != expected).reshape(made.shape[0], -1).any(1)
    return TrialRun(rows, seed, made.shape[-1], distinct, int(different.sum()))
