"""A step that runs as a graph: what goes in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.recording import map_tensors

# An argument of a step, and for a list which of its tensors.
Place: TypeAlias = tuple[int, int | None]


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


def argument_at(arguments: tuple[Any, ...], place: Place) -> torch.Tensor:
    """The tensor at a place of a step's arguments."""
    position, index = place
    given = arguments[position]
    tensor: torch.Tensor = given if index is None else given[index]
    return tensor
