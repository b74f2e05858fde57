"""Runs a step under PyTorch's profiler, with its schedule's steps marked."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from dynaflow_dsl.measurement.timeline import (
    Timeline,
    device_timeline,
    host_timeline,
)
from dynaflow_dsl.runtime.device_clock import DeviceClock
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.streams import MakeStreams, make_streams
from dynaflow_dsl.runtime.watch import StepWatch

# How ranges of the CPU are named while they are recorded.
RANGE = "dfsc step "

Load: TypeAlias = Callable[[MakeStreams], Executor]


@dataclass(frozen=True, slots=True)
class Profile:
    """What ran when in some runs of one step.

    `streams` are those of the schedule, main first. `replayed` says that the runs were
    replays of one CUDA graph; `refused` why they were not where that was asked for.
    """

    device: str
    streams: tuple[str, ...]
    timeline: Timeline
    replayed: bool
    refused: str = ""


def profile_step(
    load: Load,
    arguments: Sequence[Any],
    *,
    runs: int,
    replay: bool = True,
    make: MakeStreams = make_streams,
) -> Profile:
    """Profile `runs` runs of an executor, which `load` makes for given streams.

    On a CUDA device the step is replayed from a graph if `replay` says so and it can be
    captured, else issued each time. Arguments are written to as a step does. Raises
    LoadError (DFS808) where times of a device cannot be taken.
    """
    watch = StepWatch()
    executor = load(watch.over(make))
    watch.run(executor, arguments)
    names = tuple(stream.name for stream in executor.streams)
    if executor.device.type != "cuda":
        timeline = _on_host(watch, executor, arguments, runs)
        return Profile("CPU", names, timeline, replayed=False)
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
        else:
            run = graph.replay
    for _ in range(2):
        run()
    torch.cuda.synchronize(device)

    def finished() -> None:
        run()
        torch.cuda.synchronize(device)

    timeline = device_timeline(_recorded(finished, runs, cuda=True), watch.steps)
    if replay and not refused:
        del kept
    described = f"{device} ({torch.cuda.get_device_name(device)})"
    return Profile(described, names, timeline, replay and not refused, refused)


def _on_host(
    watch: StepWatch, executor: Executor, arguments: Sequence[Any], runs: int
) -> Timeline:
    """Ranges of the profiler around the steps, which run when they are called."""
    opened: list[Any] = []

    def begin(step: int) -> None:
        opened.append(record_function(f"{RANGE}{step}"))
        opened[-1].__enter__()

    def end(step: int) -> None:
        opened.pop().__exit__(None, None, None)

    watch.begin, watch.end = begin, end
    events = _recorded(lambda: watch.run(executor, arguments), runs, cuda=False)
    return host_timeline(events, watch.steps, RANGE)


def _recorded(
    run: Callable[[], object], runs: int, *, cuda: bool
) -> list[dict[str, Any]]:
    """A profiler's events of some runs, after one that is not recorded.

    They are those of its trace file: the only form that tells the grids of kernels.
    """
    # Else the library below the profiler writes to stderr that it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    activities = [ProfilerActivity.CPU]
    if cuda:
        activities.append(ProfilerActivity.CUDA)
    with profile(
        activities=activities, schedule=schedule(wait=0, warmup=1, active=1, repeat=1)
    ) as profiler:
        run()
        profiler.step()
        for _ in range(runs):
            run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        document = json.loads(path.read_text(encoding="utf-8"))
    events: list[dict[str, Any]] = document["traceEvents"]
    return events
