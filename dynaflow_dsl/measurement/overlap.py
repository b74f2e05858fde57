"""How much of what a schedule claims to be concurrent really was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from dynaflow_dsl.measurement.intervals import Interval, common, length, union
from dynaflow_dsl.measurement.timeline import TimedStep, Timeline


@dataclass(frozen=True, slots=True)
class ClaimedStep:
    """A step of a window: its label, and whether it is of the iteration before."""

    label: str
    previous: bool


@dataclass(frozen=True, slots=True)
class ClaimedWindow:
    """A window of a schedule file, with the steps of each of its runs."""

    text: str
    line: int
    runs: tuple[tuple[ClaimedStep, ...], ...]


@dataclass(frozen=True, slots=True)
class WindowOverlap:
    """How far two runs of a window overlapped, over layers and repeated steps.

    A share is the time in which work of both was on the device, over the time in which
    work of the shorter one was. `claim` are the two runs, which are the whole window
    where it has no others; `count` is 0 for a window that was not measured.
    """

    window: str
    line: int
    claim: str
    median: float
    least: float
    most: float
    count: int


@dataclass(frozen=True, slots=True)
class OverlapReport:
    """Every window of one schedule and entry, beside the least median that is asked.

    `one_stream` says that the step ran on one stream, where nothing can overlap.
    """

    module: str
    entry: str
    schedule: str
    batch: int
    device: str
    how: str
    one_stream: bool
    minimum: float
    windows: tuple[WindowOverlap, ...]
    dimension: str = "batch"

    @property
    def ok(self) -> bool:
        """Whether every measured window overlapped enough, and on one stream none."""
        shares = [one.median for one in self.windows if one.count]
        impossible = self.one_stream and any(one.most > 0.0 for one in self.windows)
        return all(share >= self.minimum for share in shares) and not impossible

    def lines(self) -> Iterator[str]:
        """The report as a table, a window in a line."""
        place = [self.module, f"entry {self.entry}"]
        if self.schedule:
            place.insert(1, f"schedule {self.schedule}")
        verdict = "ok" if self.ok else "FAILED"
        size = f"{self.dimension} {self.batch}" if self.dimension else "fixed sizes"
        yield (
            f"{', '.join(place)}, overlap at {size} on {self.device}, "
            f"{self.how}: {verdict}"
        )
        if not self.windows:
            yield "  the schedule claims no overlap"
            return
        width = max(len("window"), *(len(one.claim) for one in self.windows))
        yield f"  {'window':{width}}  line  median   least  count"
        for one in self.windows:
            head = f"  {one.claim:{width}}  {one.line:>4}"
            if not one.count:
                yield f"{head}  not measured: no layer ran both"
                continue
            low = "" if one.median >= self.minimum else f"  below {self.minimum:.0%}"
            yield f"{head}{one.median:>8.1%}{one.least:>8.1%}{one.count:>7}{low}"
        if self.one_stream and any(one.most > 0.0 for one in self.windows):
            yield "  steps of one stream overlap: these times mean nothing"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def measure_overlap(
    timeline: Timeline, windows: Sequence[ClaimedWindow]
) -> tuple[WindowOverlap, ...]:
    """The overlap of each pair of runs of each window."""
    steps: dict[tuple[int, str, int], TimedStep] = {}
    for timed in timeline.steps:
        steps[timed.run, timed.step.label, timed.step.position] = timed
    runs = sorted({run for run, _, _ in steps})
    positions = sorted({position for _, _, position in steps})
    found = []
    for window in windows:
        for left, right in combinations(window.runs, 2):
            shares = []
            for run in runs:
                for position in positions:
                    one = _busy(steps, run, position, left)
                    other = _busy(steps, run, position, right)
                    if one and other:
                        shares.append(share(one, other))
            claim = f"{_written(left)} | {_written(right)}"
            found.append(
                WindowOverlap(
                    window.text,
                    window.line,
                    claim,
                    median(shares) if shares else 0.0,
                    min(shares, default=0.0),
                    max(shares, default=0.0),
                    len(shares),
                )
            )
    return tuple(found)


def share(one: Sequence[Interval], other: Sequence[Interval]) -> float:
    """The common time of two unions of intervals over that of the shorter one."""
    first, second = list(union(one)), list(union(other))
    shorter = min(length(first), length(second))
    return common(first, second) / shorter if shorter > 0.0 else 0.0


def _busy(
    steps: dict[tuple[int, str, int], TimedStep],
    run: int,
    position: int,
    wanted: Iterable[ClaimedStep],
) -> list[Interval]:
    """When work of some steps was on the device; empty where one of them did not run.

    A step without any work of its own has its whole time.
    """
    found: list[Interval] = []
    for one in wanted:
        timed = steps.get((run, one.label, position - one.previous))
        if timed is None:
            return []
        if timed.work:
            found += [(each.begin, each.end) for each in timed.work]
        else:
            found.append((timed.begin, timed.end))
    return found


def _written(steps: Iterable[ClaimedStep]) -> str:
    return ", ".join(f"{'prev.' if one.previous else ''}{one.label}" for one in steps)
