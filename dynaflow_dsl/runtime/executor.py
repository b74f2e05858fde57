"""The base class of generated executors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

import torch

from dynaflow_dsl.runtime.captured_sizes import CapturedSizes
from dynaflow_dsl.runtime.capturing import Capturing
from dynaflow_dsl.runtime.errors import InputError, LoadError
from dynaflow_dsl.runtime.executor_setup import Call, Context, Setup
from dynaflow_dsl.runtime.input_memory import InputMemory, allocated
from dynaflow_dsl.runtime.inputs import Bounds, InputCheck, InputSpecs
from dynaflow_dsl.runtime.model import (
    Capture,
    Fetch,
    Part,
    PhaseSplit,
    Split,
    StreamOptions,
    TensorSpec,
)
from dynaflow_dsl.runtime.phases import Phases, phases_missing
from dynaflow_dsl.runtime.ranks import Ranks
from dynaflow_dsl.runtime.recording import Parts
from dynaflow_dsl.runtime.replay import Replays
from dynaflow_dsl.runtime.replayed import Replay
from dynaflow_dsl.runtime.report import StepReport, Uncaptured
from dynaflow_dsl.runtime.step_sizes import StepSizes
from dynaflow_dsl.runtime.streams import Streams

_log = logging.getLogger("dynaflow_dsl.runtime")


class Executor:
    """One entry of a schedule, bound to a model; calling it runs one step.

    Subclasses are generated: they give `step`, `sequential`, `parts` and the class
    variables. An instance has one attribute per part, called with the iteration and its
    inputs. `schedule` and `entry` say which executor of a module it is, `parameters`
    those that the schedule was compiled with; `dimensions` holds inclusive bounds, and
    `written` names arguments that a step writes in place. `phases` are those that rows
    of a dimension belong to; a split by phase needs to be told how many of each there
    are in every step. `groups` are the process groups of the parts that have
    collectives, and `alike` the dimensions of which all ranks have equally many.
    With `needs_context`, each step of a piece runs in `context(rows)`. `capture` says
    which steps become CUDA graphs.
    """

    schedule: ClassVar[str] = ""
    entry: ClassVar[str]
    parameters: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    inputs: ClassVar[InputSpecs]
    dimensions: ClassVar[Bounds] = MappingProxyType({})
    written: ClassVar[tuple[str, ...]] = ()
    phases: ClassVar[Phases] = MappingProxyType({})
    split: ClassVar[Split | PhaseSplit | None] = None
    needs_context: ClassVar[bool] = False
    stream_names: ClassVar[tuple[str, ...]] = ()
    stream_options: ClassVar[Mapping[str, StreamOptions]] = MappingProxyType({})
    groups: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    alike: ClassVar[tuple[str, ...]] = ()
    capture: ClassVar[Capture | None] = None

    # Plain annotations of functions: the generated signatures differ by module.
    step: ClassVar[Callable[..., Any]]
    sequential: ClassVar[Callable[..., Any]]

    # Set when a module is loaded; no graphs where nothing is captured.
    streams: Streams
    device: torch.device
    context: Context
    replays: Replays | None

    # The rows of each phase in steps whose caller says none.
    assumed_phases: Mapping[str, int] | None = None

    @staticmethod
    def parts() -> dict[str, Part]:
        """Which function each part runs, and with which weights."""
        raise NotImplementedError

    @staticmethod
    def fetches() -> dict[str, Fetch]:
        """Which weights parts bring from host memory; most executors have none."""
        return {}

    def __init__(self, setup: Setup) -> None:
        self.streams = setup.streams
        self._fetched = setup.fetched
        self.device = setup.device
        self._explain = setup.explain
        self._ranks = setup.ranks
        # The meeting of ranks in whose groups graphs are captured.
        self._met = 0
        if self._ranks is not None:
            self._ranks.know(self._step_names(), self.alike)
            self._met = self._ranks.meetings
        self._always_sequential = setup.always_sequential
        self._check = InputCheck(
            self.inputs, setup.device, self.dimensions, self.written
        )
        cut = self.split if isinstance(self.split, PhaseSplit) else None
        self._sizes = StepSizes(self._check, self.dimensions, self.phases, cut)
        self._count = len(self.inputs)
        if setup.context is not None:
            self.context = setup.context
        self._trusted = setup.trusted
        attach(self, setup.calls)
        self.replays = None
        if self.capture is not None and setup.graphs is not None:
            capturing = Capturing(
                memory=InputMemory(self.capture, self.inputs, setup.device),
                sizes=CapturedSizes(self.capture),
                parts=Parts(self, tuple(setup.calls)),
                streams=setup.streams,
                backend=setup.graphs,
                explain=setup.explain,
                lend=setup.lend,
            )
            self.replays = Replays(
                capturing,
                lambda: sum(one.compared for one in self._trusted),
                setup.estimate,
            )

    def __call__(
        self, *arguments: Any, phases: Mapping[str, int] | None = None, **named: Any
    ) -> Any:
        """Run one step; arguments are the entry's inputs, by position or by name.

        `phases` is the number of rows of each phase, where the entry has phases. Runs
        `step`, or `sequential` where a piece of the split would be empty. Raises
        InputError (DFS802) for inputs that the module was not made for.
        """
        phases = self.assumed_phases if phases is None else phases
        arguments = self.arrange(arguments, named, phases)
        replays = self.replays
        if replays is not None:
            replay = replays.find(arguments, phases if self.phases else None)
            if replay is not None and not replay.unsplit:
                return self.replay(replay, arguments)
        return self.run(arguments, self.sizes_of(arguments, phases))

    def replay(self, replay: Replay, arguments: tuple[Any, ...]) -> Any:
        """Run a step that has been captured."""
        assert self.replays is not None
        ranks = self._ranks
        if ranks is not None and ranks.have_met_anew():
            return self.run(arguments, replay.sizes, sequential=replay.unsplit)
        try:
            if ranks is None:
                return self.replays.run(replay, arguments)
            with ranks.replayed(self._step_names()[replay.unsplit]):
                return self.replays.run(replay, arguments)
        except BaseException as error:
            self._failed(error)
            raise

    def arrange(
        self,
        arguments: tuple[Any, ...],
        named: Mapping[str, Any],
        phases: Mapping[str, int] | None = None,
    ) -> tuple[Any, ...]:
        """The arguments of a step by position. Raises InputError (DFS802).

        In an entry without phases, `phases` is the name of an argument like others.
        """
        if phases is not None and not self.phases:
            named = {**named, "phases": phases}
        if named or len(arguments) != self._count:
            with self._refusals():
                return self._check.arrange(arguments, named)
        return arguments

    def sizes_of(
        self, arguments: tuple[Any, ...], phases: Mapping[str, int] | None = None
    ) -> Mapping[str, int]:
        """The sizes of a step's dimensions and phases. Raises InputError (DFS802)."""
        with self._refusals():
            return self._sizes.of(arguments, phases)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Inputs that one rank refuses are a step that the others must not wait for."""
        try:
            yield
        except InputError as error:
            if self._ranks is not None:
                self._ranks.failed(error)
            raise

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

    def runs_unsplit(
        self, *arguments: Any, phases: Mapping[str, int] | None = None, **named: Any
    ) -> bool:
        """Whether a step with these inputs runs without the split of its schedule.

        False for a schedule that has none. Raises InputError (DFS802).
        """
        phases = self.assumed_phases if phases is None else phases
        sizes = self.sizes_of(self.arrange(arguments, named, phases), phases)
        if self.split is None:
            return False
        return self._always_sequential or not self.fills(sizes)

    def run(
        self,
        arguments: tuple[Any, ...],
        sizes: Mapping[str, int],
        *,
        sequential: bool = False,
    ) -> Any:
        """Run a step with arguments that were checked; `sequential` runs it unsplit."""
        run = self.step
        fills = self.fills(sizes)
        if sequential or self._always_sequential or not fills:
            run = self.sequential
        elif isinstance(self.split, PhaseSplit):
            rows = {name: sizes[name] for name in self.split.phases}
            run = partial(self.step, phases=rows)
        if self._ranks is not None:
            self._begin(self._ranks, run == self.sequential, sizes)
        try:
            if self._fetched.buffers:
                self.streams.take_turn()
            with torch.no_grad():
                if self.replays is None:
                    result = run(*arguments)
                else:
                    # Of a size that cannot be split there is one step, whoever asks.
                    unsplit = sequential and fills
                    result = self.replays(run, arguments, sizes, unsplit=unsplit)
            if self._ranks is not None and self._ranks.stalls is not None:
                self._ranks.stalls.end()
            return result
        except BaseException as error:  # whoever is interrupted may go on as well
            self._failed(error)
            raise

    def _failed(self, error: BaseException) -> None:
        """Say where a step failed, and leave nothing of it that others wait for."""
        self._explain(error)
        self.streams.abandon()
        if self._ranks is not None:
            self._ranks.failed(error)

    def _begin(self, ranks: Ranks, unsplit: bool, sizes: Mapping[str, int]) -> None:
        """Let all ranks run the same step. Raises RankError."""
        same = {name: sizes[name] for name in self.alike}
        ranks.before_step(self._step_names()[unsplit], same)
        if self.replays is not None and self._met < ranks.meetings:
            # They would go on with communicators that other ranks have left.
            if self.replays.release():
                _log.warning(
                    "%s: process groups were bound anew, so that steps that were "
                    "captured with the earlier ones are captured again",
                    self._step_names()[0],
                )
            self._met = ranks.meetings

    def _step_names(self) -> tuple[str, str]:
        """What ranks call a step, and one that runs unsplit."""
        name = f"{self.schedule}, entry {self.entry}"
        return name, f"{name}, unsplit,"

    def buffers(
        self, *, phases: Mapping[str, int] | None = None, **sizes: int
    ) -> dict[str, Any]:
        """Tensors to write a step's inputs into, by name, of zeros at first.

        `sizes` has every dimension of the entry, and `phases` the rows of each phase,
        as in a call of the step; a dimension with phases may be left out beside them.
        Inputs that are used in place, such as
        caches, are not among them. Where steps of these sizes are captured, they are
        the memory that the graph reads: who writes into them and calls the step with
        them saves copying. All sizes share it. Raises InputError (DFS802) for sizes
        that the module was not made for.
        """
        return self.buffers_of(self.named_sizes(sizes, phases))

    def named_sizes(
        self, given: Mapping[str, Any], phases: Mapping[str, int] | None
    ) -> Mapping[str, int]:
        """The sizes of all dimensions and phases, from those that a caller names.

        Phases may be named among the dimensions as well, and say how large theirs is.
        In an entry without phases, `phases` is a dimension like others. Raises
        InputError (DFS802).
        """
        return self._sizes.named(given, phases)

    def buffers_of(
        self, sizes: Mapping[str, int], *, sequential: bool = False
    ) -> dict[str, Any]:
        """`buffers`, of sizes that `named_sizes` gave.

        `sequential` is that of `run`.
        """
        if self.replays is not None:
            unsplit = sequential and self.fills(sizes)
            return self.replays.buffers(sizes, unsplit=unsplit)
        kept = self.written if self.capture is None else self.capture.in_place
        return {
            name: allocated(spec, sizes, self.device)
            if isinstance(spec, TensorSpec)
            else [allocated(one, sizes, self.device) for one in spec]
            for name, spec in self.inputs.items()
            if name not in kept
        }

    def compare_no_kernels(self) -> None:
        """Trust what is trusted from the first call on: for who compares it himself."""
        for one in self._trusted:
            one.compared = True

    def report(
        self, chosen: Callable[[Mapping[str, int]], bool] = lambda sizes: True
    ) -> StepReport:
        """What has been captured so far, and the memory of weights that are fetched.

        Of the captured sizes, `chosen` says which ones steps can have.
        """
        name = f"{self.schedule}, entry {self.entry}"
        if self.replays is None:
            return StepReport(name, fetched=self._fetched)
        return replace(self.replays.report(name, chosen), fetched=self._fetched)

    def uncaptured(self, sizes: Mapping[str, int]) -> Uncaptured | None:
        """Why steps of these sizes, which have run, replay no graph; None if they do.

        None as well where no step is captured, whatever its size.
        """
        return None if self.replays is None else self.replays.uncaptured(sizes)

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
