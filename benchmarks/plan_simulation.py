"""When the steps of a plan run, if each of them takes as long as somebody says.

The queues of all streams are worked off in order, as a device does: what a plan records
and awaits is all that holds them back. One rank stands for all; they run the same. Two
steps that compute at once share the device and take as long as one after the other;
transports at once share the link. A device that computes while something is on its way
may be slower by a factor, since both need its memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dynaflow_dsl.plan.model import (
    Call,
    Join,
    Loop,
    Program,
    Record,
    Statement,
    Wait,
)
from dynaflow_dsl.resolve.model import MAIN


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds that a step takes alone: it computes, and then something is moved."""

    compute: float = 0.0
    transport: float = 0.0


@dataclass(frozen=True, slots=True)
class Ran:
    """A step, the iteration that it belongs to, and when it ran, in seconds."""

    call: Call
    iteration: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class _Recorded:
    event: int


@dataclass(frozen=True, slots=True)
class _Awaited:
    event: int


@dataclass(frozen=True, slots=True)
class _Job:
    call: Call
    iteration: int
    cost: Cost


_Item: TypeAlias = _Recorded | _Awaited | _Job


@dataclass(slots=True)
class _Running:
    job: _Job
    begin: float
    compute: float
    transport: float


def simulate(
    program: Program,
    streams: Sequence[str],
    cost: Callable[[Call], Cost],
    slower: float = 1.0,
) -> tuple[Ran, ...]:
    """Every step in the order in which they end.

    `slower` is the factor of a device that computes while something is moved.
    """
    queues = _queues(program, streams, cost)
    running: dict[str, _Running] = {}
    done: set[int] = set()
    ended: list[Ran] = []
    now = 0.0
    while True:
        _advance(queues, running, done, ended, now)
        if not running:
            break
        computing = [one for one in running.values() if one.compute > 0]
        moving = [one for one in running.values() if one.compute <= 0]
        pace = len(computing) * (slower if moving else 1.0)
        step = min(
            [one.compute * pace for one in computing]
            + [one.transport * len(moving) for one in moving]
        )
        now += step
        for one in computing:
            one.compute = _less(one.compute, step / pace)
        for one in moving:
            one.transport = _less(one.transport, step / len(moving))
    # What is awaited was given to its stream before: all queues come to an end.
    assert not any(queues.values())
    return tuple(ended)


def _less(left: float, by: float) -> float:
    """What is left; what rounding leaves is nothing."""
    rest = left - by
    return rest if rest > 1e-12 * left else 0.0


def _advance(
    queues: dict[str, deque[_Item]],
    running: dict[str, _Running],
    done: set[int],
    ended: list[Ran],
    now: float,
) -> None:
    """End what is done, and begin what nothing holds back, until nothing changes."""
    changed = True
    while changed:
        changed = False
        for stream, queue in queues.items():
            if (one := running.get(stream)) is not None:
                if one.compute > 0 or one.transport > 0:
                    continue
                ended.append(Ran(one.job.call, one.job.iteration, one.begin, now))
                del running[stream]
                changed = True
            while queue and stream not in running:
                match queue[0]:
                    case _Recorded(event):
                        done.add(event)
                    case _Awaited(event):
                        if event not in done:
                            break
                    case _Job(cost=cost) as job:
                        running[stream] = _Running(
                            job, now, cost.compute, cost.transport
                        )
                queue.popleft()
                changed = True


def _queues(
    program: Program, streams: Sequence[str], cost: Callable[[Call], Cost]
) -> dict[str, deque[_Item]]:
    """What the host gives to each stream, in order; events by the record awaited."""
    queues: dict[str, deque[_Item]] = {stream: deque() for stream in streams}
    latest: dict[str, int] = {}
    count = 0

    def record(stream: str) -> int:
        nonlocal count
        count += 1
        queues[stream].append(_Recorded(count))
        return count

    for i, statement in issued(program):
        match statement:
            case Call():
                job = _Job(statement, statement.layer.at(i), cost(statement))
                queues[statement.stream].append(job)
            case Record(event, stream):
                latest[event] = record(stream)
            case Wait(stream, event):
                queues[stream].append(_Awaited(latest[event]))
            case Join():
                others = [stream for stream in streams if stream != MAIN]
                for number in [record(stream) for stream in others]:
                    queues[MAIN].append(_Awaited(number))
                whole = record(MAIN)
                for stream in others:
                    queues[stream].append(_Awaited(whole))
    return queues


def issued(program: Program) -> Iterator[tuple[int, Statement]]:
    """All statements in the order of the host, with the number of the loop's pass."""
    for segment in program.segments:
        passes = range(1)
        if isinstance(segment, Loop):
            passes = range(segment.start, segment.stop)
        for i in passes:
            for block in segment.blocks:
                for statement in block.statements:
                    yield i, statement
