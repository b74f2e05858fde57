"""A step that runs as a graph: what goes in and out, and how it is known again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import is_
from typing import Any, NamedTuple, TypeAlias

import torch

from dynaflow_dsl.runtime.recording import map_tensors, tensors_of

# An argument of a step, and for a list which of its tensors.
Place: TypeAlias = tuple[int, int | None]

Sizes: TypeAlias = tuple[int, ...]

_address = torch.Tensor.data_ptr


class Wanted(NamedTuple):
    """Which step a graph is of: sizes, and whether a `select` wants it unsplit."""

    unsplit: bool
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that a replay leaves; `copied` says that the caller gets a copy."""

    tensor: torch.Tensor
    copied: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """How steps of some `sizes`, by dimension, run as a graph.

    `unsplit` tells steps that a `select` wants unsplit. `fills` are the graph's input
    tensors with the places of what is copied into them. `addresses` are those of the
    arguments that are used in place. `one` says that a step returns one tensor, else
    `result` has a placeholder for each.
    """

    sizes: Mapping[str, int]
    unsplit: bool
    items: tuple[Callable[[], None], ...]
    fills: tuple[tuple[torch.Tensor, Place], ...]
    addresses: list[int]
    outputs: tuple[Output, ...]
    one: bool
    result: Any
    # `fills` as they are run: single copies, and tensors of one dtype at once.
    singles: tuple[tuple[torch.Tensor, Place], ...] = field(init=False)
    groups: tuple[tuple[list[torch.Tensor], tuple[Place, ...]], ...] = field(init=False)

    def __post_init__(self) -> None:
        by_dtype = sorted(self.fills, key=lambda fill: str(fill[0].dtype))
        listed = [
            list(pairs)
            for _, pairs in groupby(by_dtype, key=lambda fill: fill[0].dtype)
        ]
        singles = tuple(pairs[0] for pairs in listed if len(pairs) == 1)
        groups = tuple(
            ([one for one, _ in pairs], tuple(place for _, place in pairs))
            for pairs in listed
            if len(pairs) > 1
        )
        object.__setattr__(self, "singles", singles)
        object.__setattr__(self, "groups", groups)


@dataclass(frozen=True, slots=True)
class Known:
    """A step as it came last, by which it is known again.

    `plain` and `lists` are the arguments whose memory the graph uses itself, by
    position; `used` holds all their tensors, and `addresses` where they lay. `copied`
    are the others.
    """

    count: int
    replay: Replay
    plain: tuple[tuple[int, torch.Tensor], ...]
    lists: tuple[tuple[int, tuple[torch.Tensor, ...]], ...]
    copied: tuple[tuple[int, torch.Size, torch.dtype], ...]
    used: tuple[torch.Tensor, ...]
    addresses: list[int]


def run_replay(replay: Replay, arguments: tuple[Any, ...]) -> Any:
    """Fill the graph's inputs, run it, and give the caller what it made."""
    for target, (position, index) in replay.singles:
        given = arguments[position]
        target.copy_(given if index is None else given[index])
    for targets, places in replay.groups:
        torch._foreach_copy_(
            targets,
            [
                arguments[position] if index is None else arguments[position][index]
                for position, index in places
            ],
        )
    for item in replay.items:
        item()
    if replay.one:
        (output,) = replay.outputs
        return output.tensor.clone() if output.copied else output.tensor
    made = iter(
        [one.tensor.clone() if one.copied else one.tensor for one in replay.outputs]
    )
    return map_tensors(lambda _: next(made), replay.result)


def comes_again(known: Known, arguments: tuple[Any, ...], device: torch.device) -> bool:
    """Whether a step is like one that was replayed.

    Tensors whose memory is used are the very ones of that step, at the same addresses;
    the others have the same shapes.
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
    for position, shape, dtype in known.copied:
        tensor = arguments[position]
        if (
            type(tensor) is not torch.Tensor
            or tensor.shape != shape
            or tensor.dtype is not dtype
            or tensor.device != device
            or not tensor.is_contiguous()
        ):
            return False
    return list(map(_address, known.used)) == known.addresses


def known_step(
    replay: Replay,
    arguments: tuple[Any, ...],
    names: Iterable[str],
    in_place: Collection[str],
) -> Known | None:
    """What `comes_again` needs of a step, None where lists of tensors are copied.

    An input that is the graph's own memory already is not copied when the step comes
    again.
    """
    lent = {
        place
        for target, place in replay.fills
        if (given := _at(arguments, place)).shape == target.shape
        and given.stride() == target.stride()
        and _address(given) == _address(target)
    }
    used: list[tuple[int, Any]] = []
    others: list[tuple[int, Any]] = []
    for position, (name, given) in enumerate(zip(names, arguments, strict=True)):
        whole = isinstance(given, torch.Tensor)
        indices = [None] if whole else range(len(given))
        kept = name in in_place or all((position, one) in lent for one in indices)
        (used if kept else others).append((position, given))
    if not all(isinstance(given, torch.Tensor) for _, given in others):
        return None
    copied = {position for position, _ in others}
    tensors = tuple(tensors_of([given for _, given in used]))
    return Known(
        count=len(arguments),
        replay=replace(
            replay, fills=tuple(one for one in replay.fills if one[1][0] in copied)
        ),
        plain=tuple((k, one) for k, one in used if isinstance(one, torch.Tensor)),
        lists=tuple(
            (k, tuple(one)) for k, one in used if not isinstance(one, torch.Tensor)
        ),
        copied=tuple((k, one.shape, one.dtype) for k, one in others),
        used=tensors,
        addresses=list(map(_address, tensors)),
    )


def _at(arguments: tuple[Any, ...], place: Place) -> torch.Tensor:
    position, index = place
    given = arguments[position]
    tensor: torch.Tensor = given if index is None else given[index]
    return tensor
