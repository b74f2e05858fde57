"""Which step replays which graph, and the memory that goes in and out of it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.graphs import GraphBackend
from dynaflow_dsl.runtime.inputs import InputSpecs, dtype_of, factors
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
    Place,
    Replay,
    comes_again,
    known_step,
    run_replay,
)
from dynaflow_dsl.runtime.report import SizeReport, StepReport, described
from dynaflow_dsl.runtime.streams import Streams

Sizes: TypeAlias = tuple[int, ...]
Step: TypeAlias = Callable[..., Any]


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
    statics: list[torch.Tensor]
    kept: list[torch.Tensor]
    outputs: tuple[Output, ...]
    report: SizeReport


class Replays:
    """The graphs of one executor.

    A step of a captured size runs uncaptured once, is then recorded, and is replayed
    from the next time on. What a step returns is the caller's own memory. Arguments
    that are used in place must lie where they lay when the graph was made; a step with
    others runs uncaptured, and a warning says so once. `compared` counts the kernels
    that were compared so far: a step that does so says nothing of later ones, and the
    next one of its size is recorded.
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
    ) -> None:
        self._capture = capture
        self._dimensions = tuple(capture.sizes)
        self._device = device
        self._parts = parts
        self._streams = streams
        self._backend = backend
        self._explain = explain
        self._compared = compared
        self._specs: list[TensorSpec] = []
        self._names: list[str] = []
        self._in_place: list[int] = []
        self._copied: list[int] = []
        self._places: list[Place] = []
        self._arguments = tuple(inputs)
        plain = [isinstance(spec, TensorSpec) for spec in inputs.values()]
        self._first_tensor = plain.index(True) if True in plain else None
        for position, (name, spec) in enumerate(inputs.items()):
            listed = [spec] if isinstance(spec, TensorSpec) else list(spec)
            for number, one in enumerate(listed):
                kind = self._in_place if name in capture.in_place else self._copied
                kind.append(len(self._specs))
                single = isinstance(spec, TensorSpec)
                self._names.append(name if single else f"{name}[{number}]")
                self._places.append((position, None if single else number))
                self._specs.append(one)
        self._combinations = list(product(*capture.sizes.values()))
        self._buffers: dict[int, torch.Tensor] = {}
        self._captured: dict[Sizes, _Captured] = {}
        self._replays: dict[Sizes, Replay] = {}
        # By the shape of the first tensor that is no list.
        self._known: dict[torch.Size, Known] = {}
        # Sizes that run uncaptured, and why.
        self._refused: dict[Sizes, str] = {}
        self._told_addresses = False

    def keep(self, given: Callable[[Mapping[str, int]], bool]) -> None:
        """Capture, and pad to, those sizes alone that some step has.

        Between them may lie one that a `select` gives to another schedule: it would
        never be captured, and no step could be padded to it.
        """
        self._combinations = [
            key
            for key in self._combinations
            if given(dict(zip(self._dimensions, key, strict=True)))
        ]

    def release(self) -> None:
        """Drop all graphs; the next step of each size makes its own again."""
        self._captured.clear()
        self._replays.clear()
        self._known.clear()
        self._refused.clear()
        self._told_addresses = False

    def find(self, arguments: tuple[Any, ...]) -> Replay | None:
        """The graph of a step that comes again, None where that takes a closer look."""
        first = self._first_tensor
        if first is None or len(arguments) <= first:
            return None
        given = arguments[first]
        if type(given) is not torch.Tensor:
            return None
        known = self._known.get(given.shape)
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
        self, run: Step, arguments: tuple[Any, ...], sizes: Mapping[str, int]
    ) -> Any:
        """One step: `run(*arguments)`, or what a graph makes of the same."""
        if self._backend.is_recording():
            return run(*arguments)
        key = tuple([sizes[name] for name in self._dimensions])
        replay = self._replays.get(key)
        if replay is None:
            return self._first(key, run, arguments)
        flat = list(tensors_of(arguments))
        if [_address(flat[k]) for k in self._in_place] != replay.addresses:
            self._tell_addresses(flat, replay.addresses)
            return run(*arguments)
        self._know(replay, arguments)
        return self.run(replay, arguments)

    def _know(self, replay: Replay, arguments: tuple[Any, ...]) -> None:
        """Remember a step, so that `find` knows it when it comes again."""
        if self._first_tensor is None:
            return
        known = known_step(replay, arguments, self._arguments, self._capture.in_place)
        if known is not None:
            self._known[arguments[self._first_tensor].shape] = known

    def report(self, name: str) -> StepReport:
        """What has been captured so far, and what has not."""
        captured = {key: one.report for key, one in self._captured.items()}
        waiting = [
            described(self._dimensions, key)
            for key in self._combinations
            if key not in captured and key not in self._refused
        ]
        refused = {
            described(self._dimensions, key): reason
            for key, reason in self._refused.items()
            if key in self._combinations
        }
        return StepReport(
            name=name,
            sizes=tuple(captured[key] for key in sorted(captured)),
            waiting=tuple(waiting),
            refused=refused,
            inputs=sum(buffer.nbytes for buffer in self._buffers.values()),
        )

    # ---- the first step of a size ----------------------------------------------------

    def _first(self, key: Sizes, run: Step, arguments: tuple[Any, ...]) -> Any:
        if key in self._refused:
            return run(*arguments)
        if key not in self._combinations:
            return self._padded(key, run, arguments)
        flat = list(tensors_of(arguments))
        compared = self._compared()
        result, observed = observe(self._parts, self._backend, lambda: run(*arguments))
        if self._compared() == compared:
            self._make(key, run, arguments, flat, observed)
        return result

    def _make(
        self,
        key: Sizes,
        run: Step,
        arguments: tuple[Any, ...],
        flat: list[torch.Tensor],
        observed: Observation,
    ) -> None:
        """Record steps of a size, or note why they cannot be."""
        where = described(self._dimensions, key)
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
        statics = self._statics(key, flat)
        given = _arranged(arguments, statics)
        before = self._backend.pool_bytes()
        try:
            recorded = record(
                self._parts,
                self._backend,
                self._streams,
                lambda: run(*given),
                observed,
            )
        except Exception as error:
            self._explain(error)
            notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
            first = str(error).strip().partition("\n")[0]
            self._refuse(key, f"{type(error).__name__}: {first}{notes}")
            return
        outputs = self._outputs(recorded.result, flat)
        report = SizeReport(
            sizes=where,
            step=getattr(run, "__name__", "step"),
            estimated=observed.peak,
            taken=self._backend.pool_bytes() - before,
            outputs=sum(one.tensor.nbytes for one in outputs if one.own),
            nodes=recorded.nodes,
            graphs=recorded.graphs,
            between=observed.parts,
        )
        kept = [flat[k] for k in self._in_place]
        form = map_tensors(lambda _: _PLACE, recorded.result)
        made = _Captured(recorded.items, form, statics, kept, outputs, report)
        self._captured[key] = made
        self._replays[key] = self._replay(made, key, key)

    def _refuse(self, key: Sizes, reason: str) -> None:
        self._refused[key] = reason
        where = described(self._dimensions, key)
        warnings.warn(
            f"steps of {where} are not captured and run as they are: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _statics(self, key: Sizes, flat: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The step's tensors, with the graph's own memory for those that are copied.

        All sizes use one buffer for each tensor, as large as the largest size needs.
        """
        statics = list(flat)
        for k in self._copied:
            spec = self._specs[k]
            if k not in self._buffers:
                largest = {
                    name: sizes[-1] for name, sizes in self._capture.sizes.items()
                }
                shape = _shape(spec, largest)
                self._buffers[k] = torch.zeros(
                    prod(shape), dtype=dtype_of(spec.dtype), device=self._device
                )
            shape = _shape(spec, dict(zip(self._dimensions, key, strict=True)))
            statics[k] = self._buffers[k][: prod(shape)].view(shape)
            statics[k].copy_(flat[k])
        return statics

    def _outputs(self, result: Any, flat: Sequence[torch.Tensor]) -> tuple[Output, ...]:
        """What the step returned: in its own memory, or in that of an argument."""
        storages = {flat[k].untyped_storage().data_ptr() for k in self._in_place}
        return tuple(
            Output(tensor, own=False)
            if tensor.untyped_storage().data_ptr() in storages
            else Output(self._backend.without_owner(tensor), own=True)
            for tensor in tensors_of(result)
        )

    def _replay(self, made: _Captured, key: Sizes, target: Sizes) -> Replay:
        """How steps of `key` run as the graph of `target`, in its first rows."""
        fills: dict[torch.dtype, list[tuple[torch.Tensor, Place]]] = {}
        sizes = dict(zip(self._dimensions, key, strict=True))
        for k in self._copied:
            static = made.statics[k]
            for axis, length in enumerate(_shape(self._specs[k], sizes)):
                static = static.narrow(axis, 0, length)
            fills.setdefault(static.dtype, []).append((static, self._places[k]))
        outputs = list(made.outputs)
        for name, wanted, captured in zip(self._dimensions, key, target, strict=True):
            if wanted == captured:
                continue
            axes = self._capture.padding[name]
            for place, along in enumerate(axes):
                if along is not None:
                    one = outputs[place]
                    # An output may have several rows for each row of the step.
                    rows = one.tensor.shape[along] * wanted // captured
                    outputs[place] = Output(one.tensor.narrow(along, 0, rows), one.own)
        return Replay(
            sizes,
            made.items,
            tuple(pairs[0] for pairs in fills.values() if len(pairs) == 1),
            tuple(
                ([one for one, _ in pairs], tuple(place for _, place in pairs))
                for pairs in fills.values()
                if len(pairs) > 1
            ),
            [_address(one) for one in made.kept],
            tuple(outputs),
            isinstance(made.form, torch.Tensor),
            made.form,
        )

    # ---- steps between captured sizes ------------------------------------------------

    def _padded(self, key: Sizes, run: Step, arguments: tuple[Any, ...]) -> Any:
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
        if [_address(flat[k]) for k in self._in_place] != [
            _address(one) for one in made.kept
        ]:
            return run(*arguments)
        self._replays[key] = self._replay(made, key, target)
        return self(run, arguments, dict(zip(self._dimensions, key, strict=True)))

    def _next(self, key: Sizes) -> Sizes | None:
        padding = self._capture.padding
        fitting = [
            captured
            for captured in self._combinations
            if captured not in self._refused
            and all(
                size == wanted or (size > wanted and name in padding)
                for name, size, wanted in zip(
                    self._dimensions, captured, key, strict=True
                )
            )
        ]
        return min(fitting, key=prod, default=None)

    def _tell_addresses(self, flat: Sequence[torch.Tensor], known: list[int]) -> None:
        if self._told_addresses:
            return
        self._told_addresses = True
        moved = next(
            self._names[k]
            for k, address in zip(self._in_place, known, strict=True)
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


def _shape(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = []
    for size in spec.shape:
        factor, names = factors(size)
        shape.append(factor * prod(sizes[name] for name in names))
    return tuple(shape)


def _arranged(
    arguments: Sequence[Any], flat: Sequence[torch.Tensor]
) -> tuple[Any, ...]:
    """The tensors of `flat` in lists where `arguments` have lists."""
    rest = iter(flat)
    return tuple(
        [next(rest) for _ in argument]
        if isinstance(argument, list | tuple)
        else next(rest)
        for argument in arguments
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
