"""Random small programs of ATen operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from dynaflow_dsl.graph.model import Argument, Constant, Graph, Reference, Size
from dynaflow_dsl.graph.rowwise.convolution import RULES as CONVOLUTION
from dynaflow_dsl.graph.rowwise.cutting import RULES as CUTTING
from dynaflow_dsl.graph.rowwise.factories import RULES as FACTORIES
from dynaflow_dsl.graph.rowwise.indexing import RULES as INDEXING
from dynaflow_dsl.graph.rowwise.matmul import RULES as MATMUL
from dynaflow_dsl.graph.rowwise.normalisation import RULES as NORMALISATION
from dynaflow_dsl.graph.rowwise.pointwise import RULES as POINTWISE
from dynaflow_dsl.graph.rowwise.rearrange import RULES as REARRANGE
from dynaflow_dsl.graph.rowwise.reductions import RULES as REDUCTIONS
from dynaflow_dsl.graph.rowwise.transforms import RULES as TRANSFORMS
from dynaflow_dsl.graph.rowwise.views import RULES as VIEWS
from tests.graph.rowwise.building import BATCH, Builder, Unsized
from tests.graph.rowwise.interpreter import DIMENSION
from tests.graph.rowwise.tracing import Given, flags, rows, shared, whole_numbers

INPUTS = (
    rows(4),
    rows(3, 4),
    Given((3, "batch", 4)),
    rows(),
    rows(1),
    shared(4),
    shared(3, 4),
    shared(1, 4),
    shared(4, 4),
    rows(2, 3, 4),
)


_LARGEST = 1000


@dataclass(frozen=True)
class Step:
    """One drawn operation: which kind, on which values, with which numbers."""

    kind: int
    first: int
    second: int
    one: int
    other: int
    inside: bool


class Program:
    """A builder with the values made so far, from which operands are drawn."""

    def __init__(self, inputs: tuple[int, ...]) -> None:
        self.build = Builder()
        self.values = [self.build.input(INPUTS[k % len(INPUTS)]) for k in inputs]
        self.whole = self.build.input(whole_numbers(3, "batch", 3))
        self.places = self.build.input(whole_numbers(3, 2))
        self.mask = self.build.input(flags("batch", 1))

    def pick(self, number: int) -> Reference:
        # Late values are likelier, so that programs are deep.
        return self.values[-1 - number % min(4, len(self.values))]

    def shape(self, value: Reference) -> tuple[Size, ...]:
        return self.build.types[value.name].shape

    def run(self, step: Step) -> None:
        kind = KINDS[step.kind % len(KINDS)]
        before = len(self.build.operations)
        try:
            result = kind(self, self.pick(step.first), self.pick(step.second), step)
        except Unsized:
            del self.build.operations[before:]
            return
        if isinstance(result, tuple):
            result = result[step.one % len(result)]
        # Products of products would soon fill the memory.
        if prod(size.factor for size in self.shape(result)) <= _LARGEST:
            self.values.append(result)


def program(
    inputs: tuple[int, ...], steps: list[Step]
) -> tuple[Graph, list[str], Builder]:
    """Make the graph, the names of the region, and the builder with the inputs."""
    made = Program(inputs)
    region: list[str] = []
    for number, step in enumerate(steps):
        # One operation at least, so that there is something to judge.
        if number and not region:
            step = replace(step, inside=True)
        before = len(made.build.operations)
        made.run(step)
        if step.inside:
            region.extend(made.build.names()[before:])
    outputs = made.values[-3:]
    return made.build.graph(*dict.fromkeys(outputs)), region, made.build


Kind = Callable[[Program, Reference, Reference, Step], Any]
KINDS: list[Kind] = []


def kind(function: Kind) -> Kind:
    KINDS.append(function)
    return function


def axis(state: Program, value: Reference, number: int) -> int:
    """An axis of a value, from the front or from the back."""
    rank = max(1, len(state.shape(value)))
    return number % (2 * rank) - rank


def _unary(operator: str, *rest: Argument) -> None:
    kind(lambda state, a, b, step: state.build.call(operator, a, *rest))


def _binary(operator: str, *rest: Argument) -> None:
    kind(lambda state, a, b, step: state.build.call(operator, a, b, *rest))


def _along(operator: str, *rest: Argument, listed: bool = False) -> None:
    def apply(state: Program, a: Reference, b: Reference, step: Step) -> Any:
        place = axis(state, a, step.one)
        return state.build.call(operator, a, (place,) if listed else place, *rest)

    kind(apply)


for name in (
    "tanh",
    "relu",
    "neg",
    "clone",
    "t",
    "zeros_like",
    "squeeze",
    "contiguous",
):
    _unary(f"aten.{name}.default")
_unary("aten.add_.Scalar", 1.0)
_unary("aten.mul_.Scalar", 0.5)
_unary("aten.div.Tensor", BATCH)
_unary("aten.triu.default")
_unary("aten.mean.default")
_unary("aten.clone.default")
for name in ("add", "mul", "sub"):
    _binary(f"aten.{name}.Tensor")
    _binary(f"aten.{name}.Tensor")
for name in ("maximum", "matmul", "mm", "bmm", "expand_as", "linear", "outer"):
    _binary(f"aten.{name}.default")
_binary("aten.copy_.default")
_binary("aten.add_.Tensor")
for name in ("mean.dim", "sum.dim_IntList", "amax.default", "flip.default"):
    _along(f"aten.{name}", listed=True)
_along("aten.mean.dim", True, listed=True)
for name in ("softmax.int", "cumsum.default", "unsqueeze.default", "squeeze.dim"):
    _along(f"aten.{name}")
for name in ("unbind.int", "max.dim", "sort.default"):
    _along(f"aten.{name}")
_along("aten.select.int", 0)
_along("aten.slice.Tensor", 1)
_along("aten.slice.Tensor", 0, 2)
_along("aten.slice.Tensor", 0, BATCH)


@kind
def transpose(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    one, other = axis(state, a, step.one), axis(state, a, step.other)
    return state.build.call("aten.transpose.int", a, one, other)


def _merge(operator: str) -> None:
    def apply(state: Program, a: Reference, b: Reference, step: Step) -> Any:
        shape = state.shape(a)
        if len(shape) < 2:
            raise Unsized("one axis")
        at = step.one % (len(shape) - 1)
        merged = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
        return state.build.call(operator, a, merged)

    kind(apply)


def _split(operator: str) -> None:
    def apply(state: Program, a: Reference, b: Reference, step: Step) -> Any:
        shape = state.shape(a)
        if not shape:
            raise Unsized("no axis")
        at = step.one % len(shape)
        size, factor = shape[at], (2, 3, 4)[step.other % 3]
        if size.factor % factor:
            raise Unsized("no factor")
        parts = [Size(factor), Size(size.factor // factor, size.dimensions)]
        if step.other % 2:
            parts.reverse()
        new = (*shape[:at], *parts, *shape[at + 1 :])
        return state.build.call(operator, a, new)

    kind(apply)


for name in ("view", "reshape"):
    _merge(f"aten.{name}.default")
    _split(f"aten.{name}.default")
    _split(f"aten.{name}.default")


@kind
def reorder(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    """Reshape to the same sizes in another order, which cuts through rows."""
    shape = list(state.shape(a))
    if shape:
        shape.insert(step.other % len(shape), shape.pop(step.one % len(shape)))
    return state.build.call("aten.reshape.default", a, tuple(shape))


@kind
def joined(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    return state.build.call("aten.cat.default", (a, b), axis(state, a, step.one))


@kind
def doubled(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    return state.build.call("aten.cat.default", (a, a), axis(state, a, step.one))


@kind
def stacked(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    return state.build.call("aten.stack.default", (a, b), axis(state, a, step.one))


@kind
def chunked(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    place = axis(state, a, step.one)
    return state.build.call("aten.chunk.default", a, 2, place)


@kind
def repeated(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    counts: list[Argument] = [1] * len(state.shape(a))
    if counts:
        counts[step.one % len(counts)] = (2, 3, BATCH)[step.other % 3]
    return state.build.call("aten.repeat.default", a, tuple(counts))


@kind
def interleaved(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    count = (2, BATCH)[step.other % 2]
    operator = "aten.repeat_interleave.self_int"
    return state.build.call(operator, a, count, axis(state, a, step.one))


@kind
def expanded(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    shape = [
        (BATCH if step.other % 2 else Size(2)) if size == Size(1) else size
        for size in state.shape(a)
    ]
    front = [BATCH] if step.one % 4 == 0 else [Size(2)] if step.one % 4 == 1 else []
    return state.build.call("aten.expand.default", a, (*front, *shape))


@kind
def zeros(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    return state.build.call(
        "aten.zeros.default", ((BATCH, 4), (4,), (3, BATCH))[step.one % 3]
    )


@kind
def normalised(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    return state.build.call("aten.layer_norm.default", a, (4,))


@kind
def attended(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    return state.build.call("aten.scaled_dot_product_attention.default", a, b, b)


@kind
def masked(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    return state.build.call("aten.masked_fill.Scalar", a, state.mask, 0.5)


@kind
def looked_up(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    return state.build.call("aten.embedding.default", a, state.whole)


@kind
def indexed(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    index = (state.places, state.whole)[step.one % 2]
    empty: tuple[Argument, ...] = (None,) * (step.other % 3)
    return state.build.call("aten.index.Tensor", a, (*empty, index))


@kind
def own_rows(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    numbers = state.build.call("aten.arange.default", BATCH)
    if step.one % 3 == 0:
        return state.build.call("aten.index.Tensor", a, (numbers,))
    column = state.build.call("aten.unsqueeze.default", numbers, 1)
    used = (column, state.whole) if step.one % 3 == 1 else (state.whole, column)
    return state.build.call("aten.index.Tensor", a, used)


@kind
def row_numbers(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    numbers = state.build.call("aten.arange.default", BATCH)
    return state.build.call("aten.add.Tensor", a, numbers)


@kind
def gathered(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    index = state.build.call("aten.argsort.default", b, axis(state, b, step.other))
    return state.build.call("aten.gather.default", a, axis(state, a, step.one), index)


@kind
def scattered(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    index = state.build.call("aten.argsort.default", b, axis(state, b, step.other))
    place = axis(state, a, step.one)
    if step.other % 2:
        return state.build.call("aten.scatter_.src", a, place, index, b)
    return state.build.call("aten.scatter.src", a, place, index, b)


@kind
def written(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    place, index = axis(state, a, step.one), state.build.input(whole_numbers(1, 1))
    return state.build.call("aten.index_copy_.default", a, place, index, b)


@kind
def put(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    index = (state.places, state.whole)[step.one % 2]
    return state.build.call("aten.index_put_.default", a, (index,), b)


@kind
def compact(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    layout = Constant("memory_format", "contiguous_format")
    return state.build.call("aten.clone.default", a, memory_format=layout)


@kind
def views_of_rows(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    """Write through a view that is likely to be legal."""
    place = axis(state, a, step.one)
    shape = state.shape(a)
    if not shape or DIMENSION in shape[place].dimensions:
        raise Unsized("the row axis")
    part = state.build.call("aten.select.int", a, place, 0)
    return state.build.call("aten.add_.Scalar", part, 1.0)


def _tried(state: Program, operator: str, *calls: tuple[Argument, ...]) -> Any:
    """Call an operator with the first arguments that it takes."""
    namespace, name, overload = operator.split(".")
    function = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    options = {
        place
        for place, item in enumerate(function._schema.arguments)
        if item.name in ("dtype", "layout", "memory_format")
    }
    for arguments in calls:
        # Torch takes any number for a dtype, and may then ask for all memory.
        if any(place < len(arguments) for place in options):
            continue
        try:
            return state.build.call(operator, *arguments)
        except (Unsized, TypeError):
            continue
    raise Unsized(operator)


def _chosen(names: Sequence[str], step: Step) -> str:
    return names[(12 * step.one + step.other) % len(names)]


# What memory happens to hold, or random numbers, cannot be compared.
_WITHOUT_CONTENT = ("empty", "dropout")
_ELEMENTWISE = sorted(name for name in POINTWISE if "dropout" not in name)
_AXES = sorted({*REDUCTIONS, *TRANSFORMS, *REARRANGE})
_WINDOWS = sorted(CONVOLUTION)
_SHAPES = sorted({*VIEWS, *CUTTING})
_MORE = sorted(
    name
    for name in {*MATMUL, *NORMALISATION, *FACTORIES, *INDEXING}
    if not any(word in name for word in _WITHOUT_CONTENT)
)


@kind
def elementwise(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    operator = _chosen(_ELEMENTWISE, step)
    calls: list[tuple[Argument, ...]] = [(a,), (a, b), (a, 2), (a, b, b), (a, 0.5, 2)]
    return _tried(state, operator, *calls, (a, state.mask, 0.5), (state.mask, a, b))


@kind
def along_axes(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    place = axis(state, a, step.first)
    return _tried(
        state,
        _chosen(_AXES, step),
        (a, (place,)),
        (a, place),
        (a, 2, (place,)),
        (a, 1, place),
        (a, None, (place,)),
        (a, b, place),
        ((a, b), place),
        (a, b),
        (a,),
    )


@kind
def windows(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    flat: list[Argument] = [(2,) * count for count in (1, 2, 3)]
    return _tried(
        state,
        _chosen(_WINDOWS, step),
        *((a, sizes) for sizes in flat),
        *((a, sizes, False) for sizes in flat),
        *((a, sizes, True, None) for sizes in flat),
        (a, (2, 2), (1, 1), (0, 0), (1, 1)),
        (a, b),
        (a, b, None, (1,), (0,), (1,), False, (0,), 1),
        (a, b, 0, 0, False),
    )


@kind
def shapes(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    place, other = axis(state, a, step.first), axis(state, a, step.second)
    return _tried(
        state,
        _chosen(_SHAPES, step),
        (a, place, other),
        (a, (place,), (other,)),
        (a, place, 0),
        (a, 2, place),
        (a, (1, 3), place),
        (a, (1, 2), place),
        (a, place, 0, 1),
        (a, place, 2, 1),
        (a, place, (2, 2)),
        (a, b),
        (a, tuple(state.shape(a))),
        (a, tuple(reversed(range(len(state.shape(a)))))),
        (a, (place,)),
        (a, place),
        (a,),
    )


@kind
def tables(state: Program, a: Reference, b: Reference, step: Step) -> Any:
    place = axis(state, a, step.first)
    rank = len(state.shape(a))
    return _tried(
        state,
        _chosen(_MORE, step),
        (a, b),
        (a, a),
        (b, a, b),
        (b, a, a),
        (a, (4,)),
        (a, (BATCH, 4)),
        (a, (BATCH, 4), 0.5),
        ((BATCH, 4),),
        ((BATCH, 4), 0.5),
        (a, 0.5),
        (a, 2),
        (a, None, None, None, None, True, 0.1, 1e-5, False),
        ("...a,...b->...ab", (a, b)),
        (a, place, state.whole),
        (a, place, state.places, b),
        (a, place, state.whole, b),
        (a, place, state.whole, 0.5),
        (a, place, state.whole, b, "amax"),
        (a, (*(None,) * (step.first % max(1, rank)), state.whole)),
        (4,),
        (4, 4),
        (1, 5),
        (1, 9, 2),
        (0.0, 1.0, 4),
        (0.5,),
    )
