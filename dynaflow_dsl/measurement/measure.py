"""Times and memory of every way to run a step, in one process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TypeVar

import torch
from torch.utils._pytree import tree_map

from dynaflow_dsl.measurement.contenders import (
    Case,
    largest_difference,
    make,
    why_uncaptured,
)
from dynaflow_dsl.measurement.rounds import (
    Ratio,
    Tell,
    Times,
    alone,
    alternate,
    paired_ratio,
)

MICRO = 1e6

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: `kept` stay taken between steps (graphs, buffers), `step` come on top
    while a step runs. Both are 0 on the CPU, where nobody counts.
    """

    kept: int = 0
    step: int = 0

    @property
    def total(self) -> int:
        """What a step needs at most at once, beside the model and its inputs."""
        return self.kept + self.step


@dataclass(frozen=True, slots=True)
class Row:
    """One contender: microseconds in each round, ratios to others', memory.

    `wall` and `host` are of calls on an idle device, with `ratios` of walls; `steady`
    is of calls that follow each other at once, with `steady_ratios`. `first` is seconds
    from its making to the end of its first step, in a process that others have warmed;
    `apart` how far its result is from that of the first contender, on the rank where
    it is farthest. `uncaptured` says why steps of a schedule ran without a graph, and
    is empty where they replayed one or nobody would expect it.
    """

    wall: tuple[float, ...]
    host: tuple[float, ...]
    steady: tuple[float, ...]
    ratios: Mapping[str, Ratio]
    steady_ratios: Mapping[str, Ratio]
    memory: Memory
    first: float
    apart: float
    uncaptured: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A contender that could not run."""

    reason: str


def measure(
    case: Case,
    names: Sequence[str],
    references: Sequence[str],
    rounds: int,
    seconds: float,
    clock: Callable[[], float],
    tell: Tell = alone,
    meet: Tell | None = None,
) -> dict[str, Row | Failure]:
    """Every contender of `names`, and how it relates to each of `references`.

    Of ranks that measure together, `tell` brings the words of each to all, and `meet`
    why each has failed: a contender that fails on one of them is left out on all, and
    the others are measured. `meet` may end a rank for which others wait elsewhere; it
    is `tell` where nothing is given. A contender whose schedule asks for a graph that
    could not be made fails: what would be measured is another step than
    others are held against.
    """
    calls: dict[str, Callable[[], object]] = {}
    firsts: dict[str, float] = {}
    memory: dict[str, Memory] = {}
    apart: dict[str, float] = {}
    uncaptured: dict[str, str] = {}
    failures: dict[str, Row | Failure] = {}
    wait = _wait_for(case.device)
    meet = tell if meet is None else meet
    expected: object = None
    for name in names:
        taken = _reserved(case.device)
        start = clock()
        try:
            call = _on_all(name, partial(make, case, name), meet)
            result = _on_all(name, partial(_steps, call, 1, wait), meet)
            firsts[name] = clock() - start
            result = _on_all(name, partial(_steps, call, 3, wait), meet)
            why = partial(why_uncaptured, call, case.device)
            uncaptured[name] = _on_all(name, why, meet)
        except _Failed as failed:
            failures[name] = Failure(str(failed))
            continue
        calls[name] = call
        if expected is None:
            expected = _copied(result)
        apart[name] = max(tell(largest_difference(result, expected)))
        del result
        memory[name] = _memory(call, case.device, taken)
    times = alternate(calls, rounds, seconds, wait, tell)
    rows = {
        name: replace(
            _row(name, times, references, memory[name], firsts[name], apart[name]),
            uncaptured=uncaptured[name],
        )
        for name in calls
    }
    return {name: rows.get(name) or failures[name] for name in names}


class _Failed(Exception):
    """Why a contender cannot run, on this rank or another."""


def _on_all(name: str, work: Callable[[], T], meet: Tell) -> T:
    """What `work` of a contender gives; raises _Failed on all ranks if it fails on one.

    So no rank goes on into collectives in which another one is missing.
    """
    done: list[T] = []
    reason = None
    try:
        done.append(work())
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        reason = f"{name}: {type(error).__name__}: {first}"
    said = [one for one in meet(reason) if one is not None]
    if said:
        raise _Failed(said[0].removeprefix(f"{name}: "))
    return done[0]


def _steps(
    call: Callable[[], object], count: int, wait: Callable[[], object]
) -> object:
    """The result of the last of some steps, which has ended."""
    for _ in range(count):
        result = call()
    wait()
    return result


def _row(
    name: str,
    times: Mapping[str, Times],
    references: Sequence[str],
    memory: Memory,
    first: float,
    apart: float,
) -> Row:
    own = times[name]
    others = [one for one in references if one != name and one in times]
    return Row(
        wall=_microseconds(own.wall),
        host=_microseconds(own.host),
        steady=_microseconds(own.steady),
        ratios={one: paired_ratio(own.wall, times[one].wall) for one in others},
        steady_ratios={
            one: paired_ratio(own.steady, times[one].steady) for one in others
        },
        memory=memory,
        first=round(first, 3),
        apart=apart,
    )


def _microseconds(seconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(MICRO * one, 2) for one in seconds)


def lines(
    rows: Mapping[str, Row | Failure], references: Sequence[str]
) -> Iterator[str]:
    """The measurement as a table, one contender in a line."""
    width = max(map(len, rows))
    references = [name for name in references if isinstance(rows.get(name), Row)]
    heads = "".join(f"  {f'of {name} [95%]':<26}" for name in references)
    head = f"{'':{width}}{'wall':>12}{'host':>10}{'steady':>10}"
    yield f"{head}{'memory':>12}{'apart':>10}{heads}".rstrip()
    for name, row in rows.items():
        match row:
            case Failure(reason):
                yield f"{name:{width}}  could not run: {reason}"
            case Row():
                line = f"{name:{width}}{median(row.wall):>9.1f} µs"
                line += f"{median(row.host):>10.1f}{median(row.steady):>10.1f}"
                line += f"{row.memory.total / 1e6:>9.1f} MB{row.apart:>10.1e}"
                for other in references:
                    line += f"  {_written(row.ratios.get(other)):<26}"
                yield line.rstrip()
                if row.uncaptured:
                    yield f"  runs without a graph: {row.uncaptured}"
                if row.steady_ratios:
                    line = f"{'  steady':{width + 54}}"
                    for other in references:
                        line += f"  {_written(row.steady_ratios.get(other)):<26}"
                    yield line.rstrip()


def _written(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def _wait_for(device: torch.device) -> Callable[[], object]:
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return lambda: None


def _copied(result: object) -> object:
    return tree_map(
        lambda one: one.clone() if isinstance(one, torch.Tensor) else one, result
    )


def _reserved(device: torch.device) -> int:
    """What PyTorch has taken from the device and cannot give back."""
    if device.type != "cuda":
        return 0
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return int(torch.cuda.memory_reserved(device))


def _memory(call: Callable[[], object], device: torch.device, taken: int) -> Memory:
    if device.type != "cuda":
        return Memory()
    kept = max(0, _reserved(device) - taken)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return Memory(kept, int(torch.cuda.max_memory_allocated(device) - before))
