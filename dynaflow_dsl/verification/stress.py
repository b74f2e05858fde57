"""Repeats a step with delays before some of its steps, and compares what it gives.

A plan leaves steps on different streams unordered, and which of the two runs first
depends on the device. Here both orders are brought about: a step is held back until
those that it is unordered with have run. Which ones are held back is drawn at random,
those first whose orders are still missing; times of the steps say what was seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from dynaflow_dsl.runtime.watch import Step
from dynaflow_dsl.verification.stress_report import StepPair, StressFailure, StressRun

# How much longer than the others need a step is held back, at least.
MARGIN = 2.0
# Runs that look for the pair behind one difference, at most.
SEARCHES = 48
# Differences that are looked into; there may be one in every run.
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

    @property
    def steps(self) -> Sequence[Step]:
        """The steps in order of issue."""

    @property
    def unordered(self) -> Sequence[tuple[int, int]]:
        """Pairs of steps, by number, which nothing orders."""

    def run(self, delays: Mapping[int, float]) -> Timed:
        """Run with these steps held back, by number, in the unit of the times."""


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

    def missing(self, step: int) -> int:
        """Pairs in which the step was not yet seen behind the other."""
        return sum(
            (a if b == step else b, step) not in self.seen
            for a, b in self.pairs
            if step in (a, b)
        )

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
    lengths = [max(end - begin, 0.0) for begin, end in first.times]
    failures: list[StressFailure] = []
    for trial in range(trials + 1):
        delays: Mapping[int, float] = {}
        if trial:
            delays = _delays(draw, near, orders, lengths)
        timed = first if not trial else way.run(delays)
        if len(timed.times) == len(lengths):
            orders.see(timed.times)
        found = _judged(timed, judge)
        if found is not None:
            if len(failures) < FAILURES:
                pair = _pair(way, near, lengths, delays, judge)
                failures.append(StressFailure(trial, found, pair))
            else:
                break
    both = set(orders.both)
    return StressRun(
        way=way.name,
        trials=trial,
        steps=len(lengths),
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


def _delays(
    draw: random.Random,
    near: Mapping[int, set[int]],
    orders: Orders,
    lengths: Sequence[float],
) -> dict[int, float]:
    """Steps to hold back, of which no two are unordered, and for how long.

    Each is held until the others that it is unordered with have had time to run, so
    that one run shows it behind all of them. Some other steps get a short delay, which
    changes how the steps interleave.
    """
    missing = {step: orders.missing(step) for step in near}
    ranks = {step: draw.random() * (1 + count) for step, count in missing.items()}
    held: list[int] = []
    blocked: set[int] = set()
    for step in sorted(near, key=lambda one: -ranks[one]):
        if step in blocked or (not missing[step] and draw.random() < 0.5):
            continue
        held.append(step)
        blocked |= near[step]
    delays = {
        step: draw.random() * length / 2
        for step, length in enumerate(lengths)
        if draw.random() < 0.25
    }
    return delays | _holds(sorted(held), near, lengths, 1 + draw.random())


def _holds(
    held: Iterable[int],
    near: Mapping[int, set[int]],
    lengths: Sequence[float],
    factor: float = 1.0,
) -> dict[int, float]:
    """How long steps have to wait for all that they are unordered with."""
    passed: set[int] = set()
    delays = {}
    for step in held:
        # The others have run while an earlier step was held.
        waiting = near[step] - passed
        passed |= waiting
        if waiting:
            delays[step] = factor * MARGIN * sum(lengths[one] for one in waiting)
    return delays


def _judged(timed: Timed, judge: Judge) -> str | None:
    return f"raised {timed.error}" if timed.error else judge(timed.tensors)


# ---- which two steps it was ------------------------------------------------------


def _pair(
    way: Way,
    near: Mapping[int, set[int]],
    lengths: Sequence[float],
    delays: Mapping[int, float],
    judge: Judge,
) -> StepPair | None:
    """The two steps whose order made the difference.

    One step is found that makes it alone by being held back. Steps of other streams are
    then held back even longer, one at a time: where that mends the result, the other
    one is that step or comes after it, so it is the last that mends. None where delays
    do not bring the difference back.
    """
    left = SEARCHES

    def fine(some: Mapping[int, float]) -> bool:
        nonlocal left
        left -= 1
        return _judged(way.run(some), judge) is None

    # A step that nobody held back may be late by itself.
    held = [step for step in sorted(delays) if step in near] or sorted(near)
    for step in held:
        own = _holds([step], near, lengths)
        if left <= 0 or fine(own):
            continue
        longer = 3 * own[step]
        chains: dict[str, list[int]] = {}
        for other in sorted(near[step]):
            chains.setdefault(way.steps[other].stream, []).append(other)
        for chain in chains.values():
            if not fine({**own, chain[0]: longer}):
                continue
            mends, breaks = 0, len(chain)
            while breaks - mends > 1 and left > 0:
                middle = (mends + breaks) // 2
                if fine({**own, chain[middle]: longer}):
                    mends = middle
                else:
                    breaks = middle
            return _named(way.steps, (step, chain[mends]))
    return None


def _named(steps: Sequence[Step], pair: tuple[int, int]) -> StepPair:
    one, other = (steps[number] for number in pair)
    return StepPair(
        str(one), one.stream, one.line, str(other), other.stream, other.line
    )
