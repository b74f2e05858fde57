"""Runs a step under PyTorch's profiler, with its schedule's steps marked."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from dynaflow_dsl.measurement.rounds import Tell, alone
from dynaflow_dsl.measurement.timeline import (
    Timeline,
    device_timeline,
    host_timeline,
)
from dynaflow_dsl.runtime.device_clock import DeviceClock
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.groups import global_ranks
from dynaflow_dsl.runtime.streams import MakeStreams, make_streams
from dynaflow_dsl.runtime.watch import StepWatch

# What a profile calls a device that is none.
HOST = "CPU"

# How ranges of the CPU are named while they are recorded: those of steps where they
# are called, and those of what other threads do for them.
RANGE = "dfsc step "
WORK_RANGE = "dfsc work "

# What ranks tell each other between runs is none of their work.
BETWEEN_RUNS = "dfsc between runs"

Load: TypeAlias = Callable[[MakeStreams], Executor]


@dataclass(frozen=True, slots=True)
class Profile:
    """What ran when in some runs of one step.

    `streams` are those of the schedule, main first. `replayed` says that the runs were
    replays of one CUDA graph; `refused` why they were not where that was asked for.
    Steps have numbers in order of issue: `awaited` are those of other streams that each
    one waits for, and `meets` the ranks that meet in each one with collectives.
    `origin` is the wall clock's time, in nanoseconds, at which the timeline's is 0.
    """

    device: str
    streams: tuple[str, ...]
    timeline: Timeline
    replayed: bool
    refused: str = ""
    awaited: tuple[tuple[int, ...], ...] = ()
    meets: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    origin: int = 0

    @property
    def on_host(self) -> bool:
        """Whether steps ran on threads of the CPU, which they keep until they end."""
        return self.device == HOST


@dataclass(frozen=True, slots=True)
class Recorded:
    """The events of a profiler's trace, and its `origin` as that of a Profile."""

    events: list[dict[str, Any]]
    origin: int = 0


def profile_step(
    load: Load,
    arguments: Sequence[Any],
    *,
    runs: int,
    replay: bool = True,
    make: MakeStreams = make_streams,
    tell: Tell = alone,
) -> Profile:
    """Profile `runs` runs of an executor, which `load` makes for given streams.

    On a CUDA device the step is replayed from a graph if `replay` says so and it can be
    captured, else issued each time. Arguments are written to as a step does. Ranks that
    run the step together begin each run together, and replay it if all of them can;
    `tell` brings the words of each to all. Raises LoadError (DFS808) where times of a
    device cannot be taken.
    """
    watch = StepWatch()
    executor = load(watch.over(make))
    watch.run(executor, arguments)
    names = tuple(stream.name for stream in executor.streams)
    if executor.device.type != "cuda":
        return _on_host(watch, executor, arguments, runs, names, tell)
    device = executor.device
    clock = DeviceClock(device, len(watch.steps), numbered=True)
    watch.begin, watch.end = clock.begin, clock.end

    def issue() -> None:
        watch.run(executor, arguments)

    issue()
    torch.cuda.synchronize(device)
    run, refused = issue, ""
    if replay:
        graph = torch.cuda.CUDAGraph()
        try:
            # Threads of NCCL, and our watch, ask for their events meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                kept = watch.run(executor, arguments)
        except Exception as error:  # whatever cannot be captured
            refused = f"{type(error).__name__}: {error}".partition("\n")[0]
        # Ranks that cannot do the same do not meet.
        refused = next(filter(None, [refused, *tell(refused)]), "")
        if not refused:
            run = graph.replay
    for _ in range(2):
        run()
    torch.cuda.synchronize(device)

    def finished() -> None:
        tell(None)
        run()
        torch.cuda.synchronize(device)

    recorded = _recorded(finished, runs, cuda=True)
    if replay and not refused:
        del kept
    return Profile(
        f"{device} ({torch.cuda.get_device_name(device)})",
        names,
        device_timeline(recorded.events, watch.steps, watch.groups),
        replay and not refused,
        refused,
        watch.awaited,
        _meets(watch),
        recorded.origin,
    )


def _on_host(
    watch: StepWatch,
    executor: Executor,
    arguments: Sequence[Any],
    runs: int,
    names: tuple[str, ...],
    tell: Tell,
) -> Profile:
    """Ranges of the profiler around steps, and around what threads do for them."""
    opened: dict[str, Any] = {}

    def begin(name: str) -> None:
        opened[name] = record_function(name)
        opened[name].__enter__()

    def end(name: str) -> None:
        opened.pop(name).__exit__(None, None, None)

    watch.begin = lambda step: begin(f"{RANGE}{step}")
    watch.end = lambda step: end(f"{RANGE}{step}")
    watch.begin_work = lambda step: begin(f"{WORK_RANGE}{step}")
    watch.end_work = lambda step: end(f"{WORK_RANGE}{step}")

    def run() -> None:
        with record_function(BETWEEN_RUNS):
            tell(None)
        watch.run(executor, arguments)

    recorded = _recorded(run, runs, cuda=False)
    return Profile(
        HOST,
        names,
        host_timeline(recorded.events, watch.steps, RANGE, WORK_RANGE, BETWEEN_RUNS),
        replayed=False,
        awaited=watch.awaited,
        meets=_meets(watch),
        origin=recorded.origin,
    )


def _meets(watch: StepWatch) -> dict[int, tuple[int, ...]]:
    """The ranks that meet in each step with collectives; none for those of one rank."""
    ranks = {
        number: tuple(dict.fromkeys(r for name in names for r in global_ranks(name)))
        for number, names in watch.groups.items()
    }
    return {number: listed for number, listed in ranks.items() if len(listed) > 1}


def _recorded(run: Callable[[], object], runs: int, *, cuda: bool) -> Recorded:
    """A profiler's events of some runs, after one that is not recorded.

    They are those of its trace file: the only form that tells the grids of kernels.
    """
    # Else the library below the profiler writes to stderr that it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    activities = [ProfilerActivity.CPU]
    if cuda:
        activities.append(ProfilerActivity.CUDA)
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=1, active=1, repeat=1),
        # On the CPU collectives run on threads of their streams.
        experimental_config=None
        if cuda
        else _ExperimentalConfig(profile_all_threads=True),
    ) as profiler:
        run()
        profiler.step()
        for _ in range(runs):
            run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        document = json.loads(path.read_text(encoding="utf-8"))
    return Recorded(
        document["traceEvents"], int(document.get("baseTimeNanoseconds", 0))
    )
