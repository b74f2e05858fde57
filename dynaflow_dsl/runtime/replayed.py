"""A step that runs as a graph: what goes in and out, and how it is known again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.recording import map_tensors, tensors_of

# An argument of a step, and for a list which of its tensors.
Place: TypeAlias = tuple[int, int | None]

_address = torch.Tensor.data_ptr


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that a replay leaves: memory of the graph's, or of an argument.

    `own` outputs are copied for the caller, since the next replay writes over them.
    """

    tensor: torch.Tensor
    own: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """How steps of some `sizes`, by dimension, run as a graph.

    `singles` and `fills` are the graph's input tensors with the places of what is
    copied into them: an argument, or a tensor in a list. `fills` holds several tensors
    of one dtype, which are copied at once. `addresses` are those of the arguments that
    are used in place. `one` says that a step returns one tensor.
    """

    sizes: Mapping[str, int]
    items: tuple[Callable[[], None], ...]
    singles: tuple[tuple[torch.Tensor, Place], ...]
    fills: tuple[tuple[list[torch.Tensor], tuple[Place, ...]], ...]
    addresses: list[int]
    outputs: tuple[Output, ...]
    one: bool
    result: Any


@dataclass(frozen=True, slots=True)
class Known:
    """A step as it came last, by which it is known again.

    `plain` and `lists` are the arguments that are used in place, by position;
    `in_place` holds all their tensors. `copied` are the others.
    """

    count: int
    replay: Replay
    plain: tuple[tuple[int, torch.Tensor], ...]
    lists: tuple[tuple[int, tuple[torch.Tensor, ...]], ...]
    copied: tuple[tuple[int, torch.Size, torch.dtype], ...]
    in_place: tuple[torch.Tensor, ...]


def run_replay(replay: Replay, arguments: tuple[Any, ...]) -> Any:
    """Fill the graph's inputs, run it, and copy what it made for the caller."""
    for target, (position, index) in replay.singles:
        given = arguments[position]
        target.copy_(given if index is None else given[index])
    for targets, places in replay.fills:
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
        return output.tensor.clone() if output.own else output.tensor
    made = iter(
        [one.tensor.clone() if one.own else one.tensor for one in replay.outputs]
    )
    return map_tensors(lambda _: next(made), replay.result)


def comes_again(known: Known, arguments: tuple[Any, ...], device: torch.device) -> bool:
    """Whether a step is like one that was replayed.

    Tensors that are used in place are the very ones of that step, at the same
    addresses; the others have the same shapes.
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
    return list(map(_address, known.in_place)) == known.replay.addresses


def known_step(
    replay: Replay,
    arguments: tuple[Any, ...],
    names: Sequence[str],
    in_place: Collection[str],
) -> Known | None:
    """What `comes_again` needs of a step, None where lists of tensors are copied."""
    kept: list[tuple[int, Any]] = []
    others: list[tuple[int, Any]] = []
    for place, (name, given) in enumerate(zip(names, arguments, strict=True)):
        (kept if name in in_place else others).append((place, given))
    if not all(isinstance(given, torch.Tensor) for _, given in others):
        return None
    return Known(
        count=len(names),
        replay=replay,
        plain=tuple((k, one) for k, one in kept if isinstance(one, torch.Tensor)),
        lists=tuple(
            (k, tuple(one)) for k, one in kept if not isinstance(one, torch.Tensor)
        ),
        copied=tuple((k, one.shape, one.dtype) for k, one in others),
        in_place=tuple(tensors_of([given for _, given in kept])),
    )
