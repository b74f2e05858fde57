"""Calls of compiled parts, with the weights of an iteration and for any size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.errors import InputError
from dynaflow_dsl.runtime.executor_setup import Call
from dynaflow_dsl.runtime.inductor import Boxed
from dynaflow_dsl.runtime.sizes import Compilations
from dynaflow_dsl.runtime.traced_text import Traced
from dynaflow_dsl.runtime.variants import (
    Literal,
    SizeInput,
    TensorLayout,
    Variant,
)
from dynaflow_dsl.runtime.weights import Weights, record

# A dimension, the argument that has its size, and the axis; None for a size itself.
SizePlace: TypeAlias = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """A compiled variant: its function, and the conditions on sizes it holds under."""

    boxed: Boxed
    conditions: tuple[str, ...]
    traced: Traced


# A variant for sizes that are numbers, and what it was compiled to.
Alone: TypeAlias = tuple[Variant, CompiledPart]


def bind_all(
    part: str,
    variant: Variant,
    compiled: Compilations[CompiledPart],
    alone: Sequence[Alone],
    own: Weights,
) -> Call:
    """A callable that takes the iteration's inputs, of any size.

    `alone` was compiled for single sizes and goes first where it fits.
    """
    weights = tuple(own.values())
    first = compiled.made[0]
    if not first.conditions and not alone:
        return _bind(part, variant, first, weights)
    text = partial(variant.function, record(own))
    places = _places(variant)
    chosen = {
        _sizes_of(static, places): _bind(part, static, one, weights)
        for static, one in alone
    }
    bind = partial(_bind, part, variant, weights=weights)
    return _by_size(part, places, compiled, bind, text, chosen)


def _bind(
    part: str,
    variant: Variant,
    compiled: CompiledPart,
    weights: tuple[torch.Tensor, ...],
) -> Call:
    """A callable for sizes that the conditions hold for, as flat as it can be."""
    boxed, constants = compiled.boxed, compiled.traced.constants
    outputs = compiled.traced.outputs
    if constants or any(isinstance(layout, Literal) for layout in variant.arguments):
        return _bind_with_literals(part, variant, compiled, weights)
    call: Call
    if outputs == "tensor":

        def call(*arguments: Any) -> Any:
            return boxed([*weights, *arguments])[0]

    elif outputs == "tuple":

        def call(*arguments: Any) -> Any:
            return boxed([*weights, *arguments])

    else:

        def call(*arguments: Any) -> Any:
            boxed([*weights, *arguments])

    return call


def _bind_with_literals(
    part: str,
    variant: Variant,
    compiled: CompiledPart,
    weights: tuple[torch.Tensor, ...],
) -> Call:
    boxed, constants = compiled.boxed, compiled.traced.constants
    outputs = compiled.traced.outputs
    literals = [
        (position, layout.value)
        for position, layout in enumerate(variant.arguments)
        if isinstance(layout, Literal)
    ]
    kept = [
        position
        for position, layout in enumerate(variant.arguments)
        if not isinstance(layout, Literal)
    ]

    def call(*arguments: Any) -> Any:
        for position, value in literals:
            if arguments[position] != value:
                raise InputError(
                    "DFS802",
                    f"the part `{part}` was compiled for {value!r} as its input "
                    f"{position}, and was called with {arguments[position]!r}.",
                )
        given = [arguments[position] for position in kept]
        result = boxed([*weights, *given, *constants])
        match outputs:
            case "tensor":
                return result[0]
            case "tuple":
                return result
        return None

    return call


def _sizes_of(variant: Variant, places: Sequence[SizePlace]) -> tuple[int, ...]:
    """The sizes of a variant whose sizes are numbers."""
    found = []
    for _, position, axis in places:
        layout = variant.arguments[position]
        size = layout.shape[axis or 0] if isinstance(layout, TensorLayout) else None
        if isinstance(layout, Literal):
            size = layout.value  # type: ignore[assignment]
        assert isinstance(size, int)
        found.append(size)
    return tuple(found)


def _by_size(
    part: str,
    places: Sequence[SizePlace],
    compiled: Compilations[CompiledPart],
    bind: Callable[[CompiledPart], Call],
    text: Call,
    chosen: dict[tuple[int, ...], Call],
) -> Call:
    """Choose what was compiled for the sizes at hand, once for each combination.

    `chosen` holds what is known beforehand, and is filled further.
    """

    def call(*arguments: Any) -> Any:
        sizes = tuple(
            arguments[position] if axis is None else arguments[position].shape[axis]
            for _, position, axis in places
        )
        known = chosen.get(sizes)
        if known is None:
            names = (name for name, _, _ in places)
            named = dict(zip(names, sizes, strict=True))
            if _is_capturing(arguments):
                # Nothing can be compiled inside somebody's CUDA graph.
                fitting = compiled.known(named)
                return (text if fitting is None else bind(fitting))(*arguments)
            fitting = compiled.fitting(named)
            if fitting is None:
                conditions = [one.conditions for one in compiled.made]
                warnings.warn(_not_compiled(part, conditions, named), stacklevel=3)
            known = chosen[sizes] = text if fitting is None else bind(fitting)
        return known(*arguments)

    return call


def _is_capturing(arguments: Sequence[Any]) -> bool:
    on_cuda = any(isinstance(one, torch.Tensor) and one.is_cuda for one in arguments)
    return on_cuda and torch.cuda.is_current_stream_capturing()


def _not_compiled(
    part: str, conditions: Sequence[Sequence[str]], sizes: Mapping[str, int]
) -> str:
    given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    held = "; or ".join(" and ".join(assumed) for assumed in conditions)
    return (
        f"the part `{part}` was compiled for sizes with {held}, and is called with "
        f"{given}: its text runs as it stands, which is right but slower. Choose sizes "
        "that these conditions hold for where time matters."
    )


def _places(variant: Variant) -> list[SizePlace]:
    """For each dimension, the first argument and axis that has exactly its size."""
    found: dict[str, tuple[str, int, int | None]] = {}
    for position, layout in enumerate(variant.arguments):
        match layout:
            case TensorLayout(shape=shape):
                for axis, size in enumerate(shape):
                    if isinstance(size, str) and size.isidentifier():
                        found.setdefault(size, (size, position, axis))
            case SizeInput(size) if size.isidentifier():
                found.setdefault(size, (size, position, None))
    return list(found.values())


def never_called(part: str, position: int) -> Call:
    """A callable that refuses, since nothing showed what it would be called with."""

    def call(*_: Any) -> Any:
        raise InputError(
            "DFS802",
            f"iteration {position} of the part `{part}` is not part of `sequential`, "
            "so it was not compiled.",
        )

    return call
