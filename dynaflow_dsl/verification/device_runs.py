"""Ways to run a step on a CUDA device with some of its steps held back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dynaflow_dsl.runtime.device_clock import DeviceClock
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.streams import MakeStreams
from dynaflow_dsl.runtime.watch import Step, StepWatch
from dynaflow_dsl.verification.results import copied, tensors_of
from dynaflow_dsl.verification.state import ModelState
from dynaflow_dsl.verification.stress import Timed

NANO = 1e9


class _OnDevice:
    """An executor whose steps are timed by the device, and what its runs start from."""

    # A mark takes a few microseconds to start, and so does a wait for an event.
    slack = 20e3

    def __init__(
        self,
        load: Callable[[MakeStreams], Executor],
        arguments: Sequence[Any],
        state: ModelState,
    ) -> None:
        self._watch = StepWatch()
        self._executor = load(self._watch.over())
        self._arguments = arguments
        self._state = state
        # The first run counts the steps, and compiles what is compiled late.
        self._issue(copied(arguments))
        self.steps: tuple[Step, ...] = self._watch.steps
        self.unordered: Sequence[tuple[int, int]] = self._watch.unordered()
        self._clock = DeviceClock(self._executor.device, len(self.steps))
        self._watch.begin, self._watch.end = self._clock.begin, self._clock.end
        # The second compiles the marks.
        self._issue(copied(arguments))

    def _issue(self, given: Sequence[Any]) -> float:
        """Run a step and wait for it; seconds until it was issued."""
        start = time.perf_counter()
        try:
            self._watch.run(self._executor, given)
            issued = time.perf_counter() - start
            torch.cuda.synchronize(self._executor.device)
        finally:
            self._state.restore()
        return issued

    def _timed(self, outputs: Any, given: Sequence[Any]) -> Timed:
        torch.cuda.synchronize(self._executor.device)
        made = [one.clone() for one in tensors_of(outputs)]
        effects = self._state.effects()
        self._state.restore()
        return Timed(self._clock.read(), [*made, *tensors_of(given), *effects.values()])


class Eager(_OnDevice):
    """Steps that the host issues anew each time.

    The device is held back until all of a step has been issued: else the host would
    decide what can run at the same time.
    """

    name = "eager"

    def __init__(
        self,
        load: Callable[[MakeStreams], Executor],
        arguments: Sequence[Any],
        state: ModelState,
    ) -> None:
        super().__init__(load, arguments, state)
        self._host = self._issue(copied(arguments))

    def run(self, releases: Mapping[int, float]) -> Timed:
        """One step with some steps held back."""
        given = copied(self._arguments)
        self._clock.set_releases(releases)
        self._clock.start(2 * self._host * NANO)
        return self._timed(self._watch.run(self._executor, given), given)


class Replayed(_OnDevice):
    """Steps in one CUDA graph, which is captured once and replayed with any delays."""

    name = "captured"

    def __init__(
        self,
        load: Callable[[MakeStreams], Executor],
        arguments: Sequence[Any],
        state: ModelState,
    ) -> None:
        super().__init__(load, arguments, state)
        self._given = copied(arguments)
        self._graph = torch.cuda.CUDAGraph()
        # Threads of NCCL, and our watch, ask for their events meanwhile.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._outputs = self._watch.run(self._executor, self._given)

    def run(self, releases: Mapping[int, float]) -> Timed:
        """One replay with some steps held back."""
        pairs = zip(
            tree_leaves(self._given), tree_leaves(tuple(self._arguments)), strict=True
        )
        for own, other in pairs:
            if isinstance(own, torch.Tensor):
                own.copy_(other)
        self._clock.set_releases(releases)
        self._clock.start()
        self._graph.replay()
        timed = self._timed(self._outputs, self._given)
        return Timed(timed.times, [one.clone() for one in timed.tensors])
