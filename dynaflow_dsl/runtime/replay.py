"""Which step replays which graph, and the memory that goes in and out of it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.graphs import GraphBackend
from dynaflow_dsl.runtime.input_memory import InputMemory, allocated, arranged
from dynaflow_dsl.runtime.inputs import InputSpecs
from dynaflow_dsl.runtime.model import Capture, TensorSpec
from dynaflow_dsl.runtime.recording import (
    Observation,
    Parts,
    map_tensors,
    observe,
    record,
    tensors_of,
)
from dynaflow_dsl.runtime.replayed import (
    Known,
    Output,
    Replay,
    Sizes,
    Wanted,
    comes_again,
    known_step,
    run_replay,
)
from dynaflow_dsl.runtime.report import (
    Estimate,
    SizeReport,
    StepReport,
    Uncaptured,
    described,
)
from dynaflow_dsl.runtime.streams import Streams

Step: TypeAlias = Callable[..., Any]


# The number of rows of each phase, for graphs that go by phases.
PhaseRows: TypeAlias = tuple[tuple[str, int], ...]


_address = torch.Tensor.data_ptr
_log = logging.getLogger("dynaflow_dsl.runtime")


@dataclass(slots=True)
class _Captured:
    """A graph, what it keeps alive, and what is told of it.

    `form` is what the step returned, with a placeholder for each tensor: the tensors
    themselves would keep memory of the pool that other graphs may use.
    """

    items: tuple[Callable[[], None], ...]
    form: Any
    kept: list[torch.Tensor]
    outputs: tuple[Output, ...]
    report: SizeReport


class Replays:
    """The graphs of one executor.

    A step of a captured size runs uncaptured once, is then recorded, and is replayed
    from the next time on. What a step returns is the caller's own memory, or with
    `lend` the graph's, which the next step writes over. Arguments that are used in
    place must lie where they lay when the graph was made; a step with others runs
    uncaptured, and a warning says so once. `compared` counts the kernels that were
    compared so far: a step that does so says nothing of later ones, and the next one of
    its size is recorded. `estimate` bounds the memory of a step that has not run.
    """

    def __init__(
        self,
        capture: Capture,
        inputs: InputSpecs,
        device: torch.device,
        parts: Parts,
        streams: Streams,
        backend: GraphBackend,
        explain: Callable[[BaseException], None],
        compared: Callable[[], int],
        lend: bool,
        estimate: Estimate | None = None,
    ) -> None:
        self._capture = capture
        self._inputs = inputs
        self._dimensions = tuple(capture.sizes)
        self._device = device
        self._parts = parts
        self._streams = streams
        self._backend = backend
        self._explain = explain
        self._compared = compared
        self._lend = lend
        self._estimate = estimate
        self._memory = InputMemory(capture, inputs, device)
        plain = [isinstance(spec, TensorSpec) for spec in inputs.values()]
        self._first_tensor = plain.index(True) if True in plain else None
        self._combinations = capture.combinations()
        self._phases = [n for names in capture.phases.values() for n in names]
        self._captured: dict[Wanted, _Captured] = {}
        self._replays: dict[Wanted, Replay] = {}
        # By the shape of the first tensor that is no list, and the rows of phases.
        self._known: dict[tuple[torch.Size, PhaseRows], Known] = {}
        # Steps that run uncaptured, and why.
        self._refused: dict[Wanted, str] = {}
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
        self._told_addresses = False
        return had_some

    def find(
        self, arguments: tuple[Any, ...], phases: Mapping[str, int] | None = None
    ) -> Replay | None:
        """The graph of a step that comes again, None where that takes a closer look."""
        rows: PhaseRows = ()
        if phases is not None:
            # Phases that graphs do not go by are still to be checked.
            if not self._phases or type(phases) is not dict:
                return None
            rows = tuple(phases.items())
        first = self._first_tensor
        if first is None or len(arguments) <= first:
            return None
        given = arguments[first]
        if type(given) is not torch.Tensor:
            return None
        known = self._known.get((given.shape, rows))
        if known is None or not comes_again(known, arguments, self._device):
            return None
        return None if self._backend.is_recording() else known.replay

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
        key = Wanted(unsplit, tuple([sizes[name] for name in self._dimensions]))
        replay = self._replays.get(key)
        if replay is None:
            return self._first(key, run, arguments)
        flat = list(tensors_of(arguments))
        if [_address(flat[k]) for k in self._memory.in_place] != replay.addresses:
            self._tell_addresses(flat, replay.addresses)
            return run(*arguments)
        self._know(replay, arguments)
        return self.run(replay, arguments)

    def _know(self, replay: Replay, arguments: tuple[Any, ...]) -> None:
        """Remember a step, so that `find` knows it when it comes again."""
        if self._first_tensor is None:
            return
        known = known_step(replay, arguments, self._inputs, self._capture.in_place)
        if known is not None:
            rows = tuple((name, replay.sizes[name]) for name in self._phases)
            self._known[arguments[self._first_tensor].shape, rows] = known

    def captured_size(self, sizes: Mapping[str, int]) -> int | None:
        """Rows of the graph that a step of `sizes` could run as; None if none could."""
        if not sizes.keys() >= set(self._dimensions):
            # Phases that nobody said, since what is chosen does not go by them.
            return None
        key = Wanted(True, tuple([sizes[name] for name in self._dimensions]))
        target = self._next(key)
        return None if target is None else self._rows(target.sizes)

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
        if sizes.keys() >= set(self._dimensions):
            wanted = tuple([sizes[name] for name in self._dimensions])
            target = self._next(Wanted(unsplit, wanted))
        memory = self._memory
        flat: list[Any] = [None] * len(memory.names)
        for k in memory.copied:
            lent = target and memory.rows(k, sizes, self._named(target.sizes))
            # Rows of a padded step may lie apart, and inputs must not.
            flat[k] = (
                lent
                if lent is not None and lent.is_contiguous()
                else allocated(memory.specs[k], sizes, self._device)
            )
        given = arranged(self._inputs, flat)
        return {
            name: one
            for name, one in zip(self._inputs, given, strict=True)
            if name not in self._capture.in_place
        }

    def report(
        self, name: str, chosen: Callable[[Mapping[str, int]], bool]
    ) -> StepReport:
        """What has been captured so far, and what of `chosen` sizes has not."""
        captured = {key: one.report for key, one in self._captured.items()}
        known = {sizes for _, sizes in (*captured, *self._refused)}
        waiting = {
            described(self._dimensions, sizes): self._named(sizes)
            for sizes in self._combinations
            if sizes not in known and chosen(self._named(sizes))
        }
        expected = {
            where: size
            for where, named in waiting.items()
            if (size := self._expected(named)) is not None
        }
        refused = {
            described(self._dimensions, key.sizes): reason
            for key, reason in self._refused.items()
            if key.sizes in self._combinations
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

    def _named(self, sizes: Sizes) -> dict[str, int]:
        """Sizes of phases, and of the dimensions that they add up to."""
        named = dict(zip(self._dimensions, sizes, strict=True))
        return {**named, **self._capture.complete(sizes)}

    def _rows(self, sizes: Sizes) -> int:
        return prod(self._capture.complete(sizes).values())

    def uncaptured(self, sizes: Mapping[str, int]) -> Uncaptured | None:
        """Why steps of these sizes run as they are, None where a graph runs instead.

        Of steps that have run so far, and not of those that a `select` wants unsplit.
        """
        key = Wanted(False, tuple([sizes[name] for name in self._dimensions]))
        if key in self._replays:
            return None
        captured = key.sizes in self._combinations
        reason = self._refused.get(key, "they have not been captured yet")
        return Uncaptured(described(self._dimensions, key.sizes), reason, captured)

    # ---- the first step of a size ----------------------------------------------------

    def _first(self, key: Wanted, run: Step, arguments: tuple[Any, ...]) -> Any:
        if key in self._refused:
            return run(*arguments)
        if key.sizes not in self._combinations:
            return self._padded(key, run, arguments)
        flat = list(tensors_of(arguments))
        compared = self._compared()
        result, observed = observe(self._parts, self._backend, lambda: run(*arguments))
        if self._compared() == compared:
            self._make(key, run, flat, observed)
        return result

    def _make(
        self, key: Wanted, run: Step, flat: list[torch.Tensor], observed: Observation
    ) -> None:
        """Record steps of a size, or note why they cannot be."""
        where = described(self._dimensions, key.sizes)
        if observed.blocking and not self._capture.pieces:
            names = ", ".join(f"`{name}`" for name in observed.parts)
            self._refuse(
                key,
                f"the host waits for the device in the part {names}, which no graph "
                "can hold; `pieces = true` captures what lies between such parts",
            )
            return
        free = self._backend.free_bytes()
        _log.info(
            "capturing %s of %d: about %s of %s that are free",
            where,
            len(self._combinations),
            _megabytes(observed.peak),
            _megabytes(free),
        )
        if observed.peak > free:
            self._refuse(
                key,
                f"it would take about {_megabytes(observed.peak)}, and "
                f"{_megabytes(free)} are free",
            )
            return
        # Graphs of other sizes read the same memory, perhaps right now.
        self._backend.take_turn()
        given = self._memory.filled(flat, self._named(key.sizes))
        before = self._backend.pool_bytes()
        try:
            recorded = record(
                self._parts,
                self._backend,
                self._streams,
                lambda: run(*arranged(self._inputs, given)),
                observed,
            )
        except Exception as error:
            self._explain(error)
            notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
            first = str(error).strip().partition("\n")[0]
            self._refuse(key, f"{type(error).__name__}: {first}{notes}")
            return
        outputs = self._outputs(recorded.result, flat)
        copied = sum(one.tensor.nbytes for one in outputs if one.copied)
        report = SizeReport(
            sizes=where,
            step=getattr(run, "__name__", "step"),
            estimated=observed.peak,
            taken=self._backend.pool_bytes() - before,
            outputs=copied,
            nodes=recorded.nodes,
            graphs=recorded.graphs,
            between=observed.parts,
        )
        kept = [flat[k] for k in self._memory.in_place]
        form = map_tensors(lambda _: _PLACE, recorded.result)
        made = _Captured(recorded.items, form, kept, outputs, report)
        self._captured[key] = made
        self._replays[key] = self._replay(made, key, key)

    def _refuse(self, key: Wanted, reason: str) -> None:
        self._refused[key] = reason
        where = described(self._dimensions, key.sizes)
        warnings.warn(
            f"steps of {where} are not captured and run as they are: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _outputs(self, result: Any, flat: Sequence[torch.Tensor]) -> tuple[Output, ...]:
        """What the step returned: in its own memory, or in that of an argument."""
        in_place = self._memory.in_place
        storages = {flat[k].untyped_storage().data_ptr() for k in in_place}
        return tuple(
            Output(tensor, copied=False)
            if tensor.untyped_storage().data_ptr() in storages
            else Output(self._backend.without_owner(tensor), copied=not self._lend)
            for tensor in tensors_of(result)
        )

    def _replay(self, made: _Captured, key: Wanted, target: Wanted) -> Replay:
        """How steps of `key` run as the graph of `target`, in its first rows."""
        memory = self._memory
        sizes, captured_sizes = self._named(key.sizes), self._named(target.sizes)
        outputs = list(made.outputs)
        for name, wanted in sizes.items():
            captured = captured_sizes[name]
            if wanted == captured:
                continue
            axes = self._capture.padding[name]
            for place, along in enumerate(axes):
                if along is not None:
                    one = outputs[place]
                    # An output may have several rows for each row of the step.
                    rows = one.tensor.shape[along] * wanted // captured
                    narrow = one.tensor.narrow(along, 0, rows)
                    outputs[place] = Output(narrow, one.copied)
        return Replay(
            sizes=sizes,
            unsplit=key.unsplit,
            items=made.items,
            fills=tuple(
                (memory.rows(k, sizes, captured_sizes), memory.places[k])
                for k in memory.copied
            ),
            addresses=[_address(one) for one in made.kept],
            outputs=tuple(outputs),
            one=isinstance(made.form, torch.Tensor),
            result=made.form,
        )

    # ---- steps between captured sizes ------------------------------------------------

    def _padded(self, key: Wanted, run: Step, arguments: tuple[Any, ...]) -> Any:
        """Run a step as the next captured size where nothing can tell, else as it is.

        That size must have been captured with the same memory: then its rows are known
        to be there.
        """
        target = self._next(key)
        if target is None:
            self._refused[key] = "no captured size can stand for it"
            return run(*arguments)
        made = self._captured.get(target)
        if made is None:
            return run(*arguments)
        flat = list(tensors_of(arguments))
        if [_address(flat[k]) for k in self._memory.in_place] != [
            _address(one) for one in made.kept
        ]:
            return run(*arguments)
        self._replays[key] = self._replay(made, key, target)
        return self(run, arguments, self._named(key.sizes), unsplit=key.unsplit)

    def _next(self, key: Wanted) -> Wanted | None:
        """The smallest captured size that steps of a size can run as."""
        padding = self._capture.padding
        fitting = [
            Wanted(key.unsplit, captured)
            for captured in self._combinations
            if Wanted(key.unsplit, captured) not in self._refused
            and (self._given is None or self._given(self._named(captured), key.unsplit))
            and all(
                size == wanted or (size > wanted and name in padding)
                for name, size, wanted in zip(
                    self._dimensions, captured, key.sizes, strict=True
                )
            )
        ]
        return min(fitting, key=lambda one: self._rows(one.sizes), default=None)

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


_PLACE = torch.empty(0, device="meta")


def _by_sizes(key: Wanted) -> tuple[Sizes, bool]:
    return key.sizes, key.unsplit


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
