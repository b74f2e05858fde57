"""The base class of generated executors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import torch

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.graphs import GraphBackend
from dynaflow_dsl.runtime.inputs import Bounds, InputCheck, InputSpecs
from dynaflow_dsl.runtime.kernels import ComparedOnce
from dynaflow_dsl.runtime.model import (
    Capture,
    Part,
    PhaseSplit,
    Split,
    StreamOptions,
)
from dynaflow_dsl.runtime.phases import Phases, check_phases, phases_missing
from dynaflow_dsl.runtime.recording import Parts
from dynaflow_dsl.runtime.replay import Replays
from dynaflow_dsl.runtime.report import StepReport
from dynaflow_dsl.runtime.streams import Streams

# A part with its weights: called with the iteration's inputs.
Call: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """What an executor is made of when its module is loaded.

    `calls` holds one callable per iteration of each part. `explain` adds to an
    exception where in the schedule it was raised. `graphs` records steps; None where
    nothing is captured.
    """

    calls: Mapping[str, Sequence[Call]]
    streams: Streams
    device: torch.device
    explain: Callable[[BaseException], None]
    always_sequential: bool = False
    graphs: GraphBackend | None = None


class Executor:
    """One entry of a schedule, bound to a model; calling it runs one step.

    Subclasses are generated: they give `step`, `sequential`, `parts` and the class
    variables. An instance has one attribute per part, called with the iteration and its
    inputs. `schedule` and `entry` say which executor of a module it is, `parameters`
    those that the schedule was compiled with; `dimensions` holds inclusive bounds, and
    `written` names arguments that a step writes in place. `phases` are those that rows
    of a dimension belong to; a split by phase needs to be told how many of each there
    are in every step. `capture` says which steps become CUDA graphs.
    """

    schedule: ClassVar[str] = ""
    entry: ClassVar[str]
    parameters: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    inputs: ClassVar[InputSpecs]
    dimensions: ClassVar[Bounds] = MappingProxyType({})
    written: ClassVar[tuple[str, ...]] = ()
    phases: ClassVar[Phases] = MappingProxyType({})
    split: ClassVar[Split | PhaseSplit | None] = None
    stream_names: ClassVar[tuple[str, ...]] = ()
    stream_options: ClassVar[Mapping[str, StreamOptions]] = MappingProxyType({})
    capture: ClassVar[Capture | None] = None

    # Plain annotations of functions: the generated signatures differ by module.
    step: ClassVar[Callable[..., Any]]
    sequential: ClassVar[Callable[..., Any]]

    # Set when a module is loaded; no graphs where nothing is captured.
    streams: Streams
    device: torch.device
    replays: Replays | None

    @staticmethod
    def parts() -> dict[str, Part]:
        """Which function each part runs, and with which weights."""
        raise NotImplementedError

    def __init__(self, setup: Setup) -> None:
        self.streams = setup.streams
        self.device = setup.device
        self._explain = setup.explain
        self._always_sequential = setup.always_sequential
        self._check = InputCheck(
            self.inputs, setup.device, self.dimensions, self.written
        )
        self._count = len(self.inputs)
        attach(self, setup.calls)
        self.replays = None
        if self.capture is not None and setup.graphs is not None:
            trusted = [
                call
                for calls in setup.calls.values()
                for call in calls
                if isinstance(call, ComparedOnce)
            ]
            self.replays = Replays(
                self.capture,
                self.inputs,
                setup.device,
                Parts(self, tuple(setup.calls)),
                setup.streams,
                setup.graphs,
                setup.explain,
                lambda: sum(one.compared for one in trusted),
            )

    def __call__(
        self, *arguments: Any, phases: Mapping[str, int] | None = None, **named: Any
    ) -> Any:
        """Run one step; arguments are the entry's inputs, by position or by name.

        `phases` is the number of rows of each phase, where the entry has phases. Runs
        `step`, or `sequential` where a piece of the split would be empty. Raises
        InputError (DFS802) for inputs that the module was not made for.
        """
        replays = self.replays
        if replays is not None and not named:
            replay = replays.find(arguments, phases)
            if replay is not None:
                return replays.run(replay, arguments)
        arguments, sizes = self.check(arguments, named, phases)
        return self.run(arguments, sizes)

    def check(
        self,
        arguments: tuple[Any, ...],
        named: Mapping[str, Any],
        phases: Mapping[str, int] | None = None,
    ) -> tuple[tuple[Any, ...], Mapping[str, int]]:
        """The arguments of a step by position, and the sizes of its dimensions.

        Phases that were given are among the sizes.
        """
        if phases is not None and not self.phases:
            named = {**named, "phases": phases}
        if named or len(arguments) != self._count:
            arguments = self._check.arrange(arguments, named)
        sizes = self._check(arguments)
        if phases is not None and self.phases:
            return arguments, {**sizes, **check_phases(phases, self.phases, sizes)}
        if isinstance(self.split, PhaseSplit):
            raise phases_missing(self.phases, self.split.dimension)
        return arguments, sizes

    def fills(self, sizes: Mapping[str, int]) -> bool:
        """Whether every piece of the split has a row in a step of these sizes."""
        match self.split:
            case None:
                return True
            case Split() as split:
                return split.fills(sizes[split.dimension])
            case split:
                if not set(split.phases) <= sizes.keys():
                    raise phases_missing(self.phases, split.dimension)
                return split.fills(sizes)

    def run(
        self,
        arguments: tuple[Any, ...],
        sizes: Mapping[str, int],
        *,
        sequential: bool = False,
    ) -> Any:
        """Run a step with arguments that were checked; `sequential` runs it unsplit.

        A step that is asked to be unsplit is not captured: the graph of its size is
        that of the schedule.
        """
        replays = None if sequential else self.replays
        run = self.step
        if sequential or self._always_sequential or not self.fills(sizes):
            run = self.sequential
        elif isinstance(self.split, PhaseSplit):
            rows = {name: sizes[name] for name in self.split.phases}
            run = partial(self.step, phases=rows)
        try:
            with torch.no_grad():
                if replays is not None:
                    return replays(run, arguments, sizes)
                return run(*arguments)
        except Exception as error:
            self._explain(error)
            raise

    def report(self) -> StepReport:
        """What has been captured so far: sizes, graphs and memory."""
        name = f"{self.schedule}, entry {self.entry}"
        return StepReport(name) if self.replays is None else self.replays.report(name)

    def release(self) -> None:
        """Drop all captured graphs; the next step of each size is captured anew."""
        if self.replays is not None:
            self.replays.release()


def attach(executor: Executor, calls: Mapping[str, Sequence[Call]]) -> None:
    """Give `executor` one attribute per part.

    Raises LoadError when a part has the name of something that executors have.
    """
    for name, by_position in calls.items():
        if hasattr(Executor, name) or name in Executor.__annotations__:
            raise LoadError(
                "DFS804",
                f"the part `{name}` of {type(executor).__name__} has a name that the "
                "runtime keeps for itself: rename the part and compile again.",
            )
        setattr(executor, name, _by_position(tuple(by_position)))


def _by_position(calls: tuple[Call, ...]) -> Call:
    def call(position: int, *arguments: Any) -> Any:
        return calls[position](*arguments)

    return call
