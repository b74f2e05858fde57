"""Short texts for sizes, types and arguments, both ways.

    =16*batch            a size              %linear_3      the value of this name
    @dtype:float32       a torch constant    '...           a string
    ~inf ~-inf ~nan      floats JSON lacks   float32[batch, 64] (1, 64)   type, strides

Strides are left out where they are those of a dense row-major tensor.
"""

from __future__ import annotations

import math
import re

from dynaflow_dsl.graph.model import (
    Argument,
    Constant,
    Reference,
    Size,
    TensorType,
)

# Far deeper than any operator's argument.
_DEEPEST_LIST = 8
# PyTorch's integers have 64 bits.
_LARGEST_INTEGER = 2**64
_CONSTANTS = ("dtype", "layout", "memory_format", "device")
_SIZE = re.compile(r"(?P<factor>-?\d{1,20})?(?P<names>(?:\*?[^\W\d]\w*)*)")
_TYPE = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[^\]]*)\](?: \((?P<strides>[^)]*)\))?")


class TextError(ValueError):
    """A text is none of the above; the message says which and why."""


def write_size(size: Size) -> str:
    """`16*batch`, `batch`, `16`."""
    factors = [] if size.factor == 1 and size.dimensions else [str(size.factor)]
    return "*".join((*factors, *size.dimensions))


def read_size(text: str) -> Size:
    """The size that `write_size` wrote; raises TextError."""
    match = _SIZE.fullmatch(text)
    if not match or not text or text.startswith("*"):
        raise TextError(f"{text!r} is no size")
    factor, rest = match["factor"], match["names"]
    names = tuple(rest.removeprefix("*").split("*")) if rest else ()
    if factor is not None and rest and not rest.startswith("*"):
        raise TextError(f"{text!r} is no size")
    if "" in names or names != tuple(sorted(names)):
        raise TextError(f"{text!r} is no size with its dimensions in order")
    return Size(int(factor) if factor is not None else 1, names)


def write_type(value: TensorType) -> str:
    """`float32[batch, 64]`, with strides where they are not row-major."""
    shape = ", ".join(map(write_size, value.shape))
    text = f"{value.dtype}[{shape}]"
    if value.strides == _row_major(value.shape):
        return text
    return f"{text} ({', '.join(map(write_size, value.strides))})"


def read_type(text: str) -> TensorType:
    """The type that `write_type` wrote; raises TextError."""
    match = _TYPE.fullmatch(text)
    if not match:
        raise TextError(f"{text!r} is no tensor type")
    shape = _read_sizes(match["shape"])
    if match["strides"] is None:
        return TensorType(shape, _row_major(shape), match["dtype"])
    strides = _read_sizes(match["strides"])
    if len(strides) != len(shape):
        raise TextError(f"{text!r} has {len(strides)} strides for {len(shape)} axes")
    return TensorType(shape, strides, match["dtype"])


def write_argument(argument: Argument) -> object:
    """An argument as JSON."""
    match argument:
        case Reference(name):
            return f"%{name}"
        case Size():
            return f"={write_size(argument)}"
        case Constant(kind, name):
            return f"@{kind}:{name}"
        case str():
            return f"'{argument}"
        case float() if not math.isfinite(argument):
            return f"~{argument}"
        case tuple():
            return [write_argument(element) for element in argument]
    return argument


def read_argument(data: object, depth: int = 0) -> Argument:
    """The argument that `write_argument` wrote; raises TextError."""
    if isinstance(data, str):
        return _read_text(data)
    if data is None or isinstance(data, (bool, float)):
        return data
    if isinstance(data, int):
        if abs(data) > _LARGEST_INTEGER:
            raise TextError("an integer has more than 64 bits")
        return data
    if isinstance(data, list) and depth < _DEEPEST_LIST:
        return tuple([read_argument(element, depth + 1) for element in data])
    raise TextError(f"a {type(data).__name__} is no argument here")


def _read_text(text: str) -> Argument:
    sign, rest = text[:1], text[1:]
    if sign == "%" and rest:
        return Reference(rest)
    if sign == "'":
        return rest
    if sign == "=":
        return read_size(rest)
    if sign == "~" and rest in ("inf", "-inf", "nan"):
        return float(rest)
    if sign == "@":
        kind, _, name = rest.partition(":")
        for known in _CONSTANTS:
            if kind == known and name:
                return Constant(known, name)  # type: ignore[arg-type]
    raise TextError(f"{text!r} is no argument")


def _read_sizes(text: str) -> tuple[Size, ...]:
    return tuple(map(read_size, text.split(", "))) if text else ()


def _row_major(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    strides: list[Size] = []
    stride = Size(1)
    for size in reversed(shape):
        strides.append(stride)
        # As torch does, so that an empty tensor has no stride of zero.
        stride = stride if size == Size(0) else stride * size
    return tuple(reversed(strides))
