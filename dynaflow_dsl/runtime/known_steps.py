"""Steps that come again: known by their arguments, without checking these anew."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import is_
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.input_memory import InputMemory, extent, is_same_memory
from dynaflow_dsl.runtime.model import TensorSpec
from dynaflow_dsl.runtime.recording import tensors_of
from dynaflow_dsl.runtime.replayed import Replay, argument_at

# The number of rows of each phase, for graphs that go by phases.
PhaseRows: TypeAlias = tuple[tuple[str, int], ...]

_address = torch.Tensor.data_ptr

# Steps that are remembered at a time: sizes that are padded may be any number.
MOST_KNOWN = 1024


@dataclass(frozen=True, slots=True)
class Known:
    """A step as it came last, by which it is known again.

    `plain` and `lists` are the arguments whose memory the graph uses itself, by
    position; `used` holds all their tensors, and `addresses` where they lay. `copied`
    are the others, with the bytes that they take. From each of `starts`, in order, up
    to the one of `stops` lies memory that the graph uses: a copy of what shares it
    would come too late.
    """

    count: int
    replay: Replay
    plain: tuple[tuple[int, torch.Tensor], ...]
    lists: tuple[tuple[int, tuple[torch.Tensor, ...]], ...]
    copied: tuple[tuple[int, torch.Size, torch.dtype, int], ...]
    used: tuple[torch.Tensor, ...]
    addresses: list[int]
    starts: list[int]
    stops: list[int]


class KnownSteps:
    """The steps of an executor as they came last.

    They go by the shape of the first tensor that is no list, and by the rows of the
    `phases` that graphs go by.
    """

    def __init__(self, memory: InputMemory, phases: Sequence[str]) -> None:
        self._memory = memory
        self._phases = tuple(phases)
        plain = [isinstance(spec, TensorSpec) for spec in memory.inputs.values()]
        self._first_tensor = plain.index(True) if True in plain else None
        self._known: dict[tuple[torch.Size, PhaseRows], Known] = {}

    def clear(self) -> None:
        """Know none."""
        self._known.clear()

    def find(
        self, arguments: tuple[Any, ...], phases: Mapping[str, int] | None
    ) -> Replay | None:
        """How a step that is known runs; None for one that takes a closer look."""
        rows: PhaseRows = ()
        if phases is not None:
            # Phases that graphs do not go by are still to be checked.
            if not self._phases or type(phases) is not dict:
                return None
            # One that is no whole number may equal one, or have no hash.
            if not all(type(each) is int for each in phases.values()):
                return None
            rows = tuple(phases.items())
        first = self._first_tensor
        if first is None or len(arguments) <= first:
            return None
        given = arguments[first]
        if type(given) is not torch.Tensor:
            return None
        known = self._known.get((given.shape, rows))
        if known is None or not comes_again(known, arguments, self._memory.device):
            return None
        return known.replay

    def learn(self, replay: Replay, arguments: tuple[Any, ...]) -> None:
        """Remember a step with these arguments, which were checked."""
        if self._first_tensor is None:
            return
        known = known_step(replay, arguments, self._memory)
        if known is not None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            rows = tuple((name, replay.sizes[name]) for name in self._phases)
            self._known[arguments[self._first_tensor].shape, rows] = known


def comes_again(known: Known, arguments: tuple[Any, ...], device: torch.device) -> bool:
    """Whether a step is like one that was replayed.

    Tensors whose memory is used are the very ones of that step, at the same addresses;
    the others have the same shapes, and lie elsewhere.
    """
    if len(arguments) != known.count:
        return False
    for position, tensor in known.plain:
        if arguments[position] is not tensor:
            return False
    for position, tensors in known.lists:
        given = arguments[position]
        if type(given) not in (list, tuple) or len(given) != len(tensors):
            return False
        if not all(map(is_, given, tensors)):
            return False
    for position, shape, dtype, nbytes in known.copied:
        tensor = arguments[position]
        if (
            type(tensor) is not torch.Tensor
            or tensor.shape != shape
            or tensor.dtype is not dtype
            or tensor.device != device
            or not tensor.is_contiguous()
        ):
            return False
        start = _address(tensor)
        place = bisect_left(known.starts, start + nbytes) - 1
        if place >= 0 and start < known.stops[place]:
            return False
    return list(map(_address, known.used)) == known.addresses


def known_step(
    replay: Replay, arguments: tuple[Any, ...], memory: InputMemory
) -> Known | None:
    """What `comes_again` needs of a step, None where lists of tensors are copied.

    An input that is the graph's own memory already is not copied when the step comes
    again.
    """
    lent = {
        place
        for target, place in replay.fills
        if is_same_memory(argument_at(arguments, place), target)
    }
    used: list[tuple[int, Any]] = []
    others: list[tuple[int, Any]] = []
    pairs = zip(memory.inputs, arguments, strict=True)
    for position, (name, given) in enumerate(pairs):
        whole = isinstance(given, torch.Tensor)
        indices = [None] if whole else range(len(given))
        kept = name in memory.capture.in_place or all(
            (position, one) in lent for one in indices
        )
        (used if kept else others).append((position, given))
    if not all(isinstance(given, torch.Tensor) for _, given in others):
        return None
    copied = {position for position, _ in others}
    tensors = tuple(tensors_of([given for _, given in used]))
    extents = sorted({*map(extent, tensors), *map(extent, memory.buffers)})
    return Known(
        count=len(arguments),
        replay=replace(
            replay, fills=tuple(one for one in replay.fills if one[1][0] in copied)
        ),
        plain=tuple((k, one) for k, one in used if isinstance(one, torch.Tensor)),
        lists=tuple(
            (k, tuple(one)) for k, one in used if not isinstance(one, torch.Tensor)
        ),
        copied=tuple((k, one.shape, one.dtype, one.nbytes) for k, one in others),
        used=tensors,
        addresses=list(map(_address, tensors)),
        starts=[start for start, _ in extents],
        # Some may lie inside of others.
        stops=list(accumulate((stop for _, stop in extents), max)),
    )
