"""Which step replays which graph, and which runs as it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dynaflow_dsl.runtime.captured_sizes import Sizes, Wanted
from dynaflow_dsl.runtime.captured_step import CapturedStep, replay_as
from dynaflow_dsl.runtime.capturing import Capturing, Step
from dynaflow_dsl.runtime.input_memory import allocated, arranged
from dynaflow_dsl.runtime.known_steps import KnownSteps
from dynaflow_dsl.runtime.recording import tensors_of
from dynaflow_dsl.runtime.replayed import Replay, run_replay
from dynaflow_dsl.runtime.report import Estimate, StepReport, Uncaptured

_address = torch.Tensor.data_ptr

# Sizes beside captured ones of which it is remembered how they run: there may be any
# number of them.
MOST_SIZES = 1024


class Replays:
    """The graphs of one executor.

    A step of a captured size runs uncaptured once, is then recorded, and is replayed
    from the next time on. Arguments that are used in place must lie where they lay when
    the graph was made; a step with others runs uncaptured, and a warning says so once.
    `compared` counts the kernels that were compared so far: a step that does so says
    nothing of later ones, and the next one of its size is recorded. `estimate` bounds
    the memory of a step that has not run.
    """

    def __init__(
        self,
        capturing: Capturing,
        compared: Callable[[], int],
        estimate: Estimate | None = None,
    ) -> None:
        self._capturing = capturing
        self._sizes = capturing.sizes
        self._memory = capturing.memory
        self._backend = capturing.backend
        self._compared = compared
        self._estimate = estimate
        self._captured: dict[Wanted, CapturedStep] = {}
        self._replays: dict[Wanted, Replay] = {}
        self._known = KnownSteps(self._memory, self._sizes.phases)
        # Of captured sizes, those that run uncaptured, and why.
        self._refused: dict[Wanted, str] = {}
        # Other sizes that no captured one can stand for.
        self._alone: set[Wanted] = set()
        self._told_addresses = False
        self._given: Callable[[Mapping[str, int], bool], bool] | None = None

    def pad_to(self, given: Callable[[Mapping[str, int], bool], bool]) -> None:
        """Pad steps to those sizes alone that some step has, split or not.

        Between them may lie one that a `select` gives to another schedule: it is never
        captured here, and no step could wait for it.
        """
        self._given = given

    def release(self) -> bool:
        """Drop all graphs; the next step of each size makes its own again.

        Returns whether there was one.
        """
        had_some = bool(self._captured)
        self._captured.clear()
        self._replays.clear()
        self._known.clear()
        self._refused.clear()
        self._alone.clear()
        self._told_addresses = False
        return had_some

    def find(
        self, arguments: tuple[Any, ...], phases: Mapping[str, int] | None = None
    ) -> Replay | None:
        """The graph of a step that comes again, None where that takes a closer look."""
        found = self._known.find(arguments, phases)
        return None if found is None or self._backend.is_recording() else found

    def run(self, replay: Replay, arguments: tuple[Any, ...]) -> Any:
        """Run a step as its graph, without gradients."""
        self._backend.take_turn()
        if not torch.is_grad_enabled():
            return run_replay(replay, arguments)
        with torch.no_grad():
            return run_replay(replay, arguments)

    def __call__(
        self,
        run: Step,
        arguments: tuple[Any, ...],
        sizes: Mapping[str, int],
        *,
        unsplit: bool,
    ) -> Any:
        """One step: `run(*arguments)`, or what a graph makes of the same.

        `unsplit` says that `run` is the step without the schedule's split though a step
        of these sizes could be split: such steps have graphs of their own.
        """
        if self._backend.is_recording():
            return run(*arguments)
        key = self._sizes.wanted(sizes, unsplit=unsplit)
        replay = self._replays.get(key)
        if replay is None:
            return self._first(key, run, arguments)
        flat = list(tensors_of(arguments))
        if [_address(flat[k]) for k in self._memory.in_place] != replay.addresses:
            self._tell_addresses(flat, replay.addresses)
            return run(*arguments)
        self._known.learn(replay, arguments)
        apart = self._memory.apart(flat, [target for target, _ in replay.fills])
        if apart is not None:
            arguments = arranged(self._memory.inputs, apart)
        return self.run(replay, arguments)

    def captured_size(self, sizes: Mapping[str, int]) -> int | None:
        """Rows of the graph that a step of `sizes` could run as; None if none could."""
        if not self._sizes.are_in(sizes):
            # Phases that nobody said, since what is chosen does not go by them.
            return None
        target = self._next(self._sizes.wanted(sizes, unsplit=True))
        return None if target is None else self._sizes.rows(target.sizes)

    def buffers(self, sizes: Mapping[str, int], *, unsplit: bool) -> dict[str, Any]:
        """Tensors for a step's inputs, apart from those that are used in place.

        For a captured size, or one that is padded to it, they are what its graph reads:
        a step that is given them copies nothing. Graphs of all sizes read the same
        memory. For other sizes it is memory of its own. `unsplit` is that of a call.
        """
        # What is made here is zeroed on this stream, and filled on that of a step.
        if not self._backend.is_recording():
            self._backend.take_turn()
        target = None
        # Without phases that a graph goes by, a step replays none.
        if self._sizes.are_in(sizes):
            target = self._next(self._sizes.wanted(sizes, unsplit=unsplit))
        memory = self._memory
        flat: list[Any] = [None] * len(memory.names)
        for k in memory.copied:
            lent = target and memory.rows(k, sizes, self._sizes.named(target.sizes))
            # Rows of a padded step may lie apart, and inputs must not.
            flat[k] = (
                lent
                if lent is not None and lent.is_contiguous()
                else allocated(memory.specs[k], sizes, memory.device)
            )
        given = arranged(memory.inputs, flat)
        return {
            name: one
            for name, one in zip(memory.inputs, given, strict=True)
            if name not in memory.capture.in_place
        }

    def report(
        self, name: str, chosen: Callable[[Mapping[str, int]], bool]
    ) -> StepReport:
        """What has been captured so far, and what of `chosen` sizes has not."""
        captured = {key: one.report for key, one in self._captured.items()}
        known = {sizes for _, sizes in (*captured, *self._refused)}
        waiting = {
            self._sizes.described(sizes): self._sizes.named(sizes)
            for sizes in self._sizes.combinations
            if sizes not in known and chosen(self._sizes.named(sizes))
        }
        expected = {
            where: size
            for where, named in waiting.items()
            if (size := self._expected(named)) is not None
        }
        refused = {
            self._sizes.described(key.sizes): reason
            for key, reason in self._refused.items()
        }
        return StepReport(
            name=name,
            sizes=tuple(captured[key] for key in sorted(captured, key=_by_sizes)),
            waiting=tuple(waiting),
            refused=refused,
            inputs=self._memory.nbytes,
            expected=expected,
            free=self._backend.free_bytes(),
        )

    def _expected(self, sizes: Mapping[str, int]) -> int | None:
        if self._estimate is None:
            return None
        unsplit = self._given is not None and not self._given(sizes, False)
        return self._estimate(sizes, unsplit=unsplit)

    def uncaptured(self, sizes: Mapping[str, int]) -> Uncaptured | None:
        """Why steps of these sizes run as they are, None where a graph runs instead.

        Of steps that have run so far, and not of those that a `select` wants unsplit.
        """
        key = self._sizes.wanted(sizes, unsplit=False)
        if key in self._replays:
            return None
        captured = key.sizes in self._sizes.combinations
        reason = self._refused.get(key, "they have not been captured yet")
        if not captured and self._next(key) is None:
            reason = "no captured size can stand for it"
        return Uncaptured(self._sizes.described(key.sizes), reason, captured)

    # ---- the first step of a size ----------------------------------------------------

    def _first(self, key: Wanted, run: Step, arguments: tuple[Any, ...]) -> Any:
        if key in self._refused or key in self._alone:
            return run(*arguments)
        if key.sizes not in self._sizes.combinations:
            return self._padded(key, run, arguments)
        flat = list(tensors_of(arguments))
        compared = self._compared()
        result, observed = self._capturing.observe(lambda: run(*arguments))
        if self._compared() == compared:
            made = self._capturing.capture(key.sizes, run, flat, observed)
            if isinstance(made, str):
                self._refuse(key, made)
            else:
                self._captured[key] = made
                self._replays[key] = self._replay(made, key, key)
        return result

    def _refuse(self, key: Wanted, reason: str) -> None:
        self._refused[key] = reason
        where = self._sizes.described(key.sizes)
        warnings.warn(
            f"steps of {where} are not captured and run as they are: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _replay(self, made: CapturedStep, key: Wanted, target: Wanted) -> Replay:
        return replay_as(made, key, target, self._sizes, self._memory)

    # ---- steps between captured sizes ------------------------------------------------

    def _padded(self, key: Wanted, run: Step, arguments: tuple[Any, ...]) -> Any:
        """Run a step as the next captured size where nothing can tell, else as it is.

        That size must have been captured with the same memory: then its rows are known
        to be there.
        """
        target = self._next(key)
        if target is None:
            if len(self._alone) >= MOST_SIZES:
                self._alone.clear()
            self._alone.add(key)
            return run(*arguments)
        made = self._captured.get(target)
        if made is None:
            return run(*arguments)
        flat = list(tensors_of(arguments))
        if [_address(flat[k]) for k in self._memory.in_place] != made.addresses:
            return run(*arguments)
        if len(self._replays) >= len(self._captured) + MOST_SIZES:
            # Those of captured sizes stay; others are worked out again.
            self._replays = {each: self._replays[each] for each in self._captured}
        self._replays[key] = self._replay(made, key, target)
        return self(run, arguments, self._sizes.named(key.sizes), unsplit=key.unsplit)

    def _next(self, key: Wanted) -> Wanted | None:
        """The smallest captured size that steps of a size can run as."""
        fitting = [
            one
            for one in self._sizes.standing_for(key, self._refused)
            if self._given is None
            or self._given(self._sizes.named(one.sizes), one.unsplit)
        ]
        return min(fitting, key=lambda one: self._sizes.rows(one.sizes), default=None)

    def _tell_addresses(self, flat: Sequence[torch.Tensor], known: list[int]) -> None:
        if self._told_addresses:
            return
        self._told_addresses = True
        moved = next(
            self._memory.names[k]
            for k, address in zip(self._memory.in_place, known, strict=True)
            if _address(flat[k]) != address
        )
        warnings.warn(
            f"the input `{moved}` lies elsewhere than when its step was captured, so "
            "the step runs uncaptured: give the same tensors in every step, or call "
            "`release()` to capture anew with these",
            RuntimeWarning,
            stacklevel=3,
        )


def _by_sizes(key: Wanted) -> tuple[Sizes, bool]:
    return key.sizes, key.unsplit
