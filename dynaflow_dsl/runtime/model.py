"""The records that a generated module is written with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate, pairwise, product
from math import floor
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, init=False)
class TensorSpec:
    """Dtype and shape of one input; a named dimension is a string.

    A dimension may also be a product such as `"4 * batch"`.
    """

    dtype: str
    shape: tuple[int | str, ...]

    def __init__(self, dtype: str, *shape: int | str) -> None:
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Split:
    """Cuts a named dimension into pieces, sized in proportion to `weights`.

    Weights are integers, Fractions or decimal strings, and are taken exactly. Every cut
    but the last is a multiple of `align`.
    """

    __slots__ = ("_known", "align", "dimension", "weights")

    def __init__(
        self,
        dimension: str,
        *,
        weights: Sequence[int | str | Fraction],
        align: int = 1,
    ) -> None:
        self.dimension = dimension
        self.weights = tuple(Fraction(weight) for weight in weights)
        self.align = align
        self._known: dict[int, tuple[slice, ...]] = {}

    def slices(self, total: int) -> tuple[slice, ...]:
        """The pieces of `total` rows, in order; pieces may be empty."""
        known = self._known.get(total)
        if known is None:
            known = self._known[total] = tuple(self._cut(total))
        return known

    def _cut(self, total: int) -> list[slice]:
        whole = sum(self.weights)
        cuts = [0]
        for weight in list(accumulate(self.weights))[:-1]:
            steps = (2 * total * weight + whole * self.align) / (2 * whole * self.align)
            cuts.append(min(self.align * floor(steps), total))
        return [slice(start, stop) for start, stop in pairwise([*cuts, total])]

    def fills(self, total: int) -> bool:
        """Whether every piece of `total` rows has at least one row."""
        return all(piece.start < piece.stop for piece in self.slices(total))

    def __repr__(self) -> str:
        weights = ", ".join(map(str, self.weights))
        return f"Split({self.dimension!r}, weights=({weights}), align={self.align})"


@dataclass(frozen=True, slots=True)
class PhaseSplit:
    """Cuts a named dimension where its phases meet, which every step says anew.

    The rows of each phase follow those of the one before.
    """

    dimension: str
    phases: tuple[str, ...]

    def slices(self, rows: Mapping[str, int]) -> tuple[slice, ...]:
        """The pieces, in order, for the number of rows of each phase."""
        cuts = [0, *accumulate(rows[name] for name in self.phases)]
        return tuple(slice(start, stop) for start, stop in pairwise(cuts))

    def fills(self, rows: Mapping[str, int]) -> bool:
        """Whether every phase has at least one row."""
        return all(rows[name] > 0 for name in self.phases)


@dataclass(frozen=True, slots=True)
class Modules:
    """The weights of modules that one function runs in a loop: a record for each.

    `numbers` are those at the end of the modules' paths. A weight is a path in which
    `{}` stands for the module's number, or one path for each module; None there means
    that the function of that module does not read it. Where a path has two `{}`, the
    first stands for the number of the layer that the modules are in.
    """

    numbers: Sequence[int]
    weights: Mapping[str, str | Sequence[str | None]]

    def paths(self, name: str, layer: int) -> Iterator[tuple[str, str]]:
        """Path in the model of each weight, by the name `name.<position>.<weight>`."""
        for position, number in enumerate(self.numbers):
            for weight, listed in self.weights.items():
                path: str | None
                if isinstance(listed, str):
                    if listed.count("{}") > 1:
                        listed = listed.replace("{}", str(layer), 1)
                    path = listed.replace("{}", str(number))
                else:
                    path = listed[position]
                if path is not None:
                    yield f"{name}.{position}.{weight}", path


Weight: TypeAlias = "str | Modules | Sequence[str | Modules | None]"


@dataclass(frozen=True, slots=True)
class Into:
    """Functions that run those of a part and write `results` of it, by number, into
    tensors that they take behind the part's inputs; the others they return.

    `body` is one function, or several as in `Part`.
    """

    body: Callable[..., Any] | Sequence[Callable[..., Any]]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Which function a part runs in each iteration, and with which weights.

    `layers` are the numbers of the iterations' layers: call `i` of the part is that of
    `layers[i]`. `body` is one function, or several with `which[i]` the index of the
    function of iteration `i`. A weight is a path in the model in which `{}` stands for
    the layer's number, or one path for each iteration; None there means that the
    function of that iteration does not read it. Modules inside the part that are run in
    a loop have their weights in `Modules`, one for all iterations or one for each.
    `kernel` names the kernel that the
    functions call: they run as they stand, uncompiled, where a step would run those of
    the part `instead_of`. Those of a `trusted` kernel are compared with that part the
    first time they are called. `into` are further functions, each with the attribute
    of the executor that calls it: see `every_part`.
    """

    body: Callable[..., Any] | Sequence[Callable[..., Any]]
    layers: Sequence[int] = range(1)
    weights: Mapping[str, Weight] | None = None
    which: Sequence[int] | None = None
    kernel: str = ""
    instead_of: str = ""
    trusted: bool = False
    into: Mapping[str, Into] = field(default_factory=dict)

    def function(self, position: int) -> Callable[..., Any]:
        """The function of iteration `position`."""
        if callable(self.body):
            return self.body
        return self.body[self.which[position] if self.which is not None else 0]

    def paths(self, position: int) -> dict[str, str]:
        """Path in the model of each weight of iteration `position`, by name.

        A weight of the k-th module of a loop goes by the loop's name, k and its own
        name, with dots between them.
        """
        return _paths(self.weights or {}, self.layers, position)


def every_part(parts: Mapping[str, Part]) -> dict[str, Part]:
    """The parts, and behind each what writes results of it as a part of its own."""
    found: dict[str, Part] = {}
    for name, part in parts.items():
        found[name] = part
        for attribute, into in part.into.items():
            found[attribute] = replace(part, body=into.body, into={})
    return found


@dataclass(frozen=True, slots=True)
class Fetch:
    """Which weights a part brings from host memory in each iteration.

    `layers` and `weights` are as those of a `Part`. Call `i` of the part copies the
    weights of `layers[i]` to buffer `i % buffers`, where other parts read them.
    """

    layers: Sequence[int]
    weights: Mapping[str, str | Sequence[str | None]]
    buffers: int

    def paths(self, position: int) -> dict[str, str]:
        """Path in the model of each weight of iteration `position`, by name."""
        return _paths(self.weights, self.layers, position)


def _paths(
    weights: Mapping[str, Weight] | Mapping[str, str | Sequence[str | None]],
    layers: Sequence[int],
    position: int,
) -> dict[str, str]:
    found: dict[str, str] = {}
    layer = layers[position]
    for name, given in weights.items():
        one = given if isinstance(given, str | Modules) else given[position]
        match one:
            case str():
                found[name] = one.replace("{}", str(layer))
            case Modules():
                found.update(one.paths(name, layer))
    return found


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream differs from a plain one; all options are for CUDA devices.

    Work of high priority starts before other work. `sms` keeps the stream's work to a
    number of multiprocessors. `gemm_sms` has matrix products planned for a number of
    them, and keeps nothing from any.
    """

    priority: str = "normal"
    sms: int | None = None
    gemm_sms: int | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """Which steps become CUDA graphs.

    `sizes` lists ascending sizes of every named dimension; their combinations are
    captured. A dimension in `phases` has sizes of each of its phases instead, which may
    be 0. Arguments in `in_place` are read and written where they lie, and must lie
    there again in later steps; the others are copied. `padding` holds the dimensions in
    which a smaller step may run as the next captured size, with the axis of each output
    that is cut back, None for an output without rows. `static` compiles parts for each
    captured size; `pieces` captures what lies between parts that cannot be captured.
    """

    sizes: Mapping[str, tuple[int, ...]]
    in_place: tuple[str, ...] = ()
    padding: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    static: bool = False
    pieces: bool = False
    phases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def combinations(self) -> list[tuple[int, ...]]:
        """The sizes that are captured, in the order of `sizes`; no step has no row."""
        found = product(*self.sizes.values())
        return [one for one in found if all(self.complete(one).values())]

    def complete(self, sizes: Sequence[int]) -> dict[str, int]:
        """Sizes of the named dimensions, of which phases say how large they are."""
        known = dict(zip(self.sizes, sizes, strict=True))
        for dimension, phases in self.phases.items():
            known[dimension] = sum(known.pop(name) for name in phases)
        return known
