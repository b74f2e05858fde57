"""One entry of a module whose steps choose their schedule by size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.model import PhaseSplit
from dynaflow_dsl.runtime.replayed import Replay
from dynaflow_dsl.runtime.report import StepReport

# Sizes in, the method of one of the module's classes out.
Choice: TypeAlias = Callable[..., Callable[..., Any]]


class Selected:
    """All executors of one entry; calling it runs the one that fits the step's sizes.

    `entry` is the entry's name, `executors` are its executors by the names of their
    schedules. They share the model's tensors, and what is compiled of equal parts.
    """

    def __init__(
        self, entry: str, choose: Choice, executors: Sequence[Executor]
    ) -> None:
        self.entry = entry
        self.executors: Mapping[str, Executor] = {
            executor.schedule: executor for executor in executors
        }
        self._choose = choose
        # One that says so where phases are missing that some of them need.
        by_phase = (e for e in executors if isinstance(e.split, PhaseSplit))
        self._first = next(by_phase, executors[0])
        self._names = tuple(self._first.dimensions)
        self._methods: dict[Callable[..., Any], tuple[Executor, bool]] = {}
        for executor in executors:
            kind = type(executor)
            self._methods[kind.step] = (executor, False)
            self._methods[kind.sequential] = (executor, True)
        self._replays = [
            (executor, executor.replays)
            for executor in executors
            if executor.replays is not None
        ]
        for executor, replays in self._replays:
            replays.pad_to(partial(self._gives, executor))

    def __call__(
        self, *arguments: Any, phases: Mapping[str, int] | None = None, **named: Any
    ) -> Any:
        """Run one step; arguments are the entry's inputs, by position or by name.

        `phases` is the number of rows of each phase, where the entry has phases. Raises
        InputError (DFS802) for inputs that the module was not made for.
        """
        arguments = self._first.arrange(arguments, named, phases)
        rows = phases if self._first.phases else None
        for executor, replays in self._replays:
            replay = replays.find(arguments, rows)
            # Who calls an executor by itself may have captured what is not chosen.
            if replay is not None and self._runs(executor, replay):
                return executor.replay(replay, arguments)
        sizes = self._first.sizes_of(arguments, phases)
        executor, sequential = self._chosen(sizes)
        return executor.run(arguments, sizes, sequential=sequential)

    def _runs(self, executor: Executor, replay: Replay) -> bool:
        """Whether a step of the sizes that `replay` is for is that of `executor`."""
        chosen, sequential = self._method(replay.sizes)
        if sequential and executor.fills(replay.sizes):
            return replay.unsplit
        return chosen is executor and not replay.unsplit

    def _gives(
        self, executor: Executor, sizes: Mapping[str, int], unsplit: bool
    ) -> bool:
        """Whether some step of these sizes is that of `executor`, split or not."""
        chosen, sequential = self._method(sizes)
        if sequential:
            return unsplit == executor.fills(sizes)
        return chosen is executor and not unsplit

    def _method(self, sizes: Mapping[str, int]) -> tuple[Executor, bool]:
        return self._methods[self._choose(*[sizes[name] for name in self._names])]

    def _chosen(self, sizes: Mapping[str, int]) -> tuple[Executor, bool]:
        """The executor of a step, and whether it runs unsplit.

        `sequential` is the same step in all executors: it runs in the one that captures
        the nearest size.
        """
        executor, sequential = self._method(sizes)
        if not sequential or not self._replays:
            return executor, sequential
        captured = [
            (rows, number)
            for number, (_, replays) in enumerate(self._replays)
            if (rows := replays.captured_size(sizes)) is not None
        ]
        if captured:
            executor, _ = self._replays[min(captured)[1]]
        return executor, True

    def choice(self, *, phases: Mapping[str, int] | None = None, **sizes: int) -> str:
        """The name of the schedule that a step of these sizes runs, or "sequential".

        Sizes and phases are those of `buffers`: `choice(phases={"decode": 3, ...})`.
        Raises InputError (DFS802).

        Where a piece of the schedule's split would be empty, that is "sequential" too.
        Neither `DFSC_SEQUENTIAL` nor captured sizes count: a step that is padded to one
        runs as a step of that size does.
        """
        known = self._first.named_sizes(sizes, phases)
        executor, sequential = self._chosen(known)
        if sequential or not executor.fills(known):
            return "sequential"
        return executor.schedule

    def runs_unsplit(
        self, *arguments: Any, phases: Mapping[str, int] | None = None, **named: Any
    ) -> bool:
        """Whether a step with these inputs runs as `sequential`, or without the split
        of its schedule. Raises InputError (DFS802).
        """
        arguments = self._first.arrange(arguments, named, phases)
        executor, sequential = self._chosen(self._first.sizes_of(arguments, phases))
        return sequential or executor.runs_unsplit(*arguments, phases=phases)

    def report(self) -> Mapping[str, StepReport]:
        """What has been captured so far, by the schedule that names the size.

        A size that is chosen to run as `sequential` is captured as that.
        """
        return {
            name: each.report(partial(self._is_run_by, each))
            for name, each in self.executors.items()
        }

    def _is_run_by(self, executor: Executor, sizes: Mapping[str, int]) -> bool:
        return self._chosen(sizes)[0] is executor

    def buffers(
        self, *, phases: Mapping[str, int] | None = None, **sizes: int
    ) -> dict[str, Any]:
        """Tensors to write a step's inputs into: see `Executor.buffers`."""
        known = self._first.named_sizes(sizes, phases)
        executor, sequential = self._chosen(known)
        return executor.buffers_of(known, sequential=sequential)

    def release(self) -> None:
        """Drop all captured graphs; the next step of each size is captured anew."""
        for executor in self.executors.values():
            executor.release()
