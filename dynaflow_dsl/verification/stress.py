"""Repeats a step with delays before some of its steps, and compares what it gives.

A plan leaves steps on different streams unordered, and which of the two runs first
depends on the device. Here both orders are brought about: for each run an order of all
steps is drawn that the waits allow, and steps are held back so that they run in it. The
times of the steps say which orders were really seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from dynaflow_dsl.runtime.watch import Step
from dynaflow_dsl.verification.stress_report import StepPair, StressFailure, StressRun

# How much longer than they took steps are given to run before others.
MARGIN = 2.0
# Runs that look for the pair behind one difference, at most.
SEARCHES = 48
# Differences after which no more runs follow: there may be one in every run.
FAILURES = 3


@dataclass(frozen=True, slots=True)
class Timed:
    """A run: beginning and end of each step, in one unit of time, and what it gave.

    `error` is what was raised instead, if anything.
    """

    times: Sequence[tuple[float, float]]
    tensors: Sequence[torch.Tensor]
    error: str = ""


class Way(Protocol):
    """A way to run one step with its steps held back, always from the same inputs."""

    name: str
    # What a step takes beside its own work, in the unit of the times.
    slack: float

    @property
    def steps(self) -> Sequence[Step]:
        """The steps in order of issue."""

    @property
    def unordered(self) -> Sequence[tuple[int, int]]:
        """Pairs of steps, by number, which nothing orders."""

    def run(self, releases: Mapping[int, float]) -> Timed:
        """Run with steps, by number, held back until so long after the start."""


# What a result is wrong in, in words; None where it is what it has to be.
Judge: TypeAlias = Callable[[Sequence[torch.Tensor]], str | None]


@dataclass(slots=True)
class Orders:
    """Which unordered pairs were seen in which order: (a, b) is a wholly before b."""

    pairs: Sequence[tuple[int, int]]
    seen: set[tuple[int, int]]

    def see(self, times: Sequence[tuple[float, float]]) -> None:
        """Note the orders of one run."""
        for one, other in self.pairs:
            if times[one][1] <= times[other][0]:
                self.seen.add((one, other))
            elif times[other][1] <= times[one][0]:
                self.seen.add((other, one))

    @property
    def both(self) -> list[tuple[int, int]]:
        """The pairs that were seen in both orders."""
        return [
            (a, b) for a, b in self.pairs if (a, b) in self.seen and (b, a) in self.seen
        ]


def stress(way: Way, trials: int, judge: Judge, seed: int = 0) -> StressRun:
    """Run `trials` times with random delays, and once without.

    `judge` compares a result with what the step has to give.
    """
    draw = random.Random(seed)
    first = way.run({})
    near = _neighbours(way.unordered)
    orders = Orders(way.unordered, set())
    slots = [MARGIN * max(end - begin, 0.0) + way.slack for begin, end in first.times]
    failures: list[StressFailure] = []
    trial = 0
    for trial in range(trials + 1):
        timed = first
        if trial:
            order = _random_order(draw, len(slots), near, orders)
            # Every other time, steps begin before the one before them has ended.
            factor = 1.0 if trial % 2 else draw.uniform(0.2, 0.8)
            timed = way.run(_releases(order, slots, factor))
        if timed.times:
            orders.see(timed.times)
        wrong = _judged(timed, judge)
        if wrong is not None:
            pair = _pair(way, near, slots, timed, judge)
            failures.append(StressFailure(trial, wrong, pair))
            if len(failures) == FAILURES:
                break
    both = set(orders.both)
    return StressRun(
        way=way.name,
        trials=trial,
        steps=len(slots),
        pairs=len(orders.pairs),
        both=len(both),
        missed=tuple(
            _named(way.steps, pair) for pair in orders.pairs if pair not in both
        ),
        failures=tuple(failures),
    )


def _neighbours(pairs: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    """The steps that each step is unordered with."""
    near: dict[int, set[int]] = {}
    for one, other in pairs:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    return near


def _random_order(
    draw: random.Random, count: int, near: Mapping[int, set[int]], orders: Orders
) -> list[int]:
    """An order of all steps that waits allow, with many orders of pairs still unseen.

    Of two steps that nothing orders either may come first; all others stay in order of
    issue.
    """
    order: list[int] = []
    left = set(range(count))
    while left:
        free = []
        for step in sorted(left):
            if all(one in near.get(step, ()) for one in left if one < step):
                free.append(step)
        gains = {
            step: sum(
                ((step, other) not in orders.seen) - ((other, step) not in orders.seen)
                for other in near.get(step, ())
                if other in left
            )
            for step in free
        }
        chosen = max(free, key=lambda step: gains[step] + draw.random())
        order.append(chosen)
        left.remove(chosen)
    return order


def _releases(
    order: Sequence[int], slots: Sequence[float], factor: float = 1.0
) -> dict[int, float]:
    """When each step may begin, so that steps run one after the other in this order."""
    found, now = {}, 0.0
    for step in order:
        found[step] = now
        now += factor * slots[step]
    return found


def _judged(timed: Timed, judge: Judge) -> str | None:
    return f"raised {timed.error}" if timed.error else judge(timed.tensors)


# ---- which two steps it was ------------------------------------------------------


def _pair(
    way: Way,
    near: Mapping[int, set[int]],
    slots: Sequence[float],
    failed: Timed,
    judge: Judge,
) -> StepPair | None:
    """The two steps whose order made the difference.

    In order of issue, one step after the other, the result is right. Pairs that ran
    otherwise in the failed run are turned around in that order, one at a time and those
    first that lie close together; the one that makes a difference by itself is it. None
    where no single pair does.
    """
    turned = [
        (one, other)
        for one, other in way.unordered
        if not failed.times or failed.times[one][1] > failed.times[other][0]
    ]
    turned.sort(key=lambda pair: (pair[1] - pair[0], pair[0]))
    for one, other in turned[:SEARCHES]:
        order = _turned_around(len(slots), near, one, other)
        if _judged(way.run(_releases(order, slots)), judge) is not None:
            return _named(way.steps, (one, other))
    return None


def _turned_around(
    count: int, near: Mapping[int, set[int]], one: int, other: int
) -> list[int]:
    """The order of issue, but with `one`, and what has to follow it, after `other`."""
    late = [one]
    for step in range(one + 1, other):
        if any(before not in near.get(step, ()) for before in late):
            late.append(step)
    early = [step for step in range(other + 1) if step not in set(late)]
    return [*early, *late, *range(other + 1, count)]


def _named(steps: Sequence[Step], pair: tuple[int, int]) -> StepPair:
    one, other = (steps[number] for number in pair)
    return StepPair(
        str(one), one.stream, one.line, str(other), other.stream, other.line
    )
