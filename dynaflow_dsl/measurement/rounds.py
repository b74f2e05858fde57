"""Comparing callables in one process: alternating rounds and paired ratios."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeAlias

MINIMUM_ROUNDS = 5
RESAMPLES = 4000

# What all ranks that measure together say, this one's word among theirs: a collective.
Tell: TypeAlias = Callable[[Any], list[Any]]


def alone(word: Any) -> list[Any]:
    """What all ranks say where there is one."""
    return [word]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of paired ratios with the ends of its 95% interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per call in each round.

    `wall` is from the call to the end of its work on an idle device, `host` until that
    call returned: on a device with streams the work goes on after it. `steady` is the
    mean of calls that follow each other without waiting for the device.
    """

    wall: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)


def alternate(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    seconds: float,
    synchronize: Callable[[], object] = lambda: None,
    tell: Tell = alone,
) -> dict[str, Times]:
    """Seconds per call of each contender in each round.

    A sample repeats the call for about `seconds`, each time on an idle device, and then
    as often one after the other: `synchronize` waits for all work of a call. Every
    round measures all contenders back to back in an order of its own, so that drift of
    the machine meets all of them alike, and so does what the one before has left: a
    device is cooler, and runs faster, behind one that kept it idle. Ranks that measure
    together, whose words `tell` brings to each other, begin every sample together,
    repeat it equally often, and take the time of the slowest. Raises ValueError for
    fewer than five rounds.
    """
    if rounds < MINIMUM_ROUNDS:
        raise ValueError(f"{rounds} rounds are too few: at least {MINIMUM_ROUNDS}")
    repeats = {
        name: max(tell(_repeats(call, seconds, synchronize)))
        for name, call in contenders.items()
    }
    names = list(contenders)
    times = {name: Times() for name in names}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds):
            for name in order(names, number):
                call, count = contenders[name], repeats[name]
                tell(None)
                wall, host = _sample(call, count, synchronize)
                tell(None)
                steady = _steady(call, count, synchronize)
                slowest = map(max, zip(*tell((wall, host, steady)), strict=True))
                for kind, value in zip(
                    (times[name].wall, times[name].host, times[name].steady),
                    slowest,
                    strict=True,
                ):
                    kind.append(value)
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return times


def order(names: Sequence[str], number: int) -> list[str]:
    """The order of a round: over several, each name comes behind each other one.

    As often as behind any other, after as many rounds as there are names, or twice as
    many where that is odd. A Latin square balanced for carry-over (Williams, 1949).
    """
    count = len(names)
    first = [(k + 1) // 2 if k % 2 else -(k // 2) for k in range(count)]
    row = [names[(place + number) % count] for place in first]
    return row[::-1] if count % 2 and number // count % 2 else row


def paired_ratio(times: Sequence[float], reference: Sequence[float]) -> Ratio:
    """How `times` relate to those of the same rounds of `reference`; below 1 is faster.

    The interval is a bootstrap of the median with a fixed seed, so the same samples
    give the same interval.
    """
    ratios = [one / other for one, other in zip(times, reference, strict=True)]
    choose = random.Random(0)
    medians = sorted(
        median(choose.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES)
    )
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]
    return Ratio(median(ratios), low, high)


def _repeats(
    call: Callable[[], object], seconds: float, synchronize: Callable[[], object]
) -> int:
    once = max(min(_sample(call, 1, synchronize)[0] for _ in range(3)), 1e-9)
    return max(1, round(seconds / once))


def _steady(
    call: Callable[[], object], repeats: int, synchronize: Callable[[], object]
) -> float:
    """Mean seconds of calls that do not wait for each other's work."""
    synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    synchronize()
    return (time.perf_counter() - start) / repeats


def _sample(
    call: Callable[[], object], repeats: int, synchronize: Callable[[], object]
) -> tuple[float, float]:
    """Mean seconds to the end of the work and to the return of a call."""
    wall = host = 0.0
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter()
        call()
        returned = time.perf_counter()
        synchronize()
        wall += time.perf_counter() - start
        host += returned - start
    return wall / repeats, host / repeats
