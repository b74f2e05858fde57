"""Exact arithmetic on sizes: an integer times a product of named dimensions."""

from __future__ import annotations

from collections.abc import Iterable

from dynaflow_dsl.graph.model import Argument, Size

ONE = Size(1)


def product(sizes: Iterable[Size]) -> Size:
    """Multiply sizes; the product of none is 1."""
    result = ONE
    for size in sizes:
        result = result * size
    return result


def divide(size: Size, divisor: Size) -> Size | None:
    """Divide exactly for all values of the dimensions, or None where that fails.

    Zero is divided by nothing: an empty tensor has no row structure to speak of.
    """
    if not size.factor or not divisor.factor or size.factor % divisor.factor:
        return None
    left = list(size.dimensions)
    for dimension in divisor.dimensions:
        if dimension not in left:
            return None
        left.remove(dimension)
    return Size(size.factor // divisor.factor, tuple(left))


def whole_number(size: Size | None) -> int | None:
    """Return the integer that a size without dimensions is, else None."""
    if size is None or size.dimensions:
        return None
    return size.factor


def mentions(argument: Argument, dimension: str) -> bool:
    """Say whether an argument holds a size with this dimension, lists searched."""
    match argument:
        case Size():
            return dimension in argument.dimensions
        case tuple():
            return any(mentions(item, dimension) for item in argument)
        case _:
            return False


def as_size(argument: Argument) -> Size | None:
    """Read an integer or a size argument as a size; None for anything else."""
    match argument:
        case Size():
            return argument
        case bool():
            return None
        case int():
            return Size(argument)
        case _:
            return None


def shape_text(shape: Iterable[Size]) -> str:
    """Write a shape as `[batch, 4]`."""
    return f"[{', '.join(map(str, shape))}]"
