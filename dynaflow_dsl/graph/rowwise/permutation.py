"""Rows that are sorted, computed with, and put back.

A sort gives each microbatch an order of its own rows. Which one is of no consequence,
if everything is done to each place alone and the places are put back by the inverse of
the same order: a program that is row-wise gives every row what it gives that row alone,
so it does not matter where the row stands. What is done to places is therefore judged
by the rules for rows, with the places as a dimension of its own.

Mixtures of experts do more: they sort by the number of an expert, count how many places
each has, and multiply each run of places with the weights of its expert. A place is
multiplied with the weights of its own key, wherever it stands, provided that counts and
places are of the same keys and that every key is the number of an expert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from dynaflow_dsl.graph.model import (
    Argument,
    Operation,
    Reference,
    Size,
    TensorType,
    Value,
)
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    RowNumbers,
    Rows,
    Shared,
    Tensor,
    fact_of_shape,
    front_axis,
)
from dynaflow_dsl.graph.rowwise.sizes import ONE, as_size, divide, mentions


@dataclass(frozen=True, slots=True)
class Sorting:
    """An order that a sort made: its operation, how many places, the bound of its keys.

    Keys are whole numbers from 0 to below `keys`; None where that is not known, or
    where they descend.
    """

    operation: str
    places: Size
    keys: int | None


@dataclass(frozen=True, slots=True)
class Order:
    """For each place the number of what stands there, divided by `divisor`."""

    by: Sorting
    divisor: int = 1


@dataclass(frozen=True, slots=True)
class Inverse:
    """For each number the place where it stands."""

    by: Sorting


@dataclass(frozen=True, slots=True)
class Positions:
    """The numbers from 0, as many as there are, which `operation` made."""

    places: Size
    operation: str


@dataclass(frozen=True, slots=True)
class Ordered:
    """The places are along `axis`; with `keys` they hold the keys of the sort."""

    axis: int
    by: Sorting
    keys: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """How many places have each key; with `ends`, where the run of each one ends."""

    by: Sorting
    ends: bool = False


Placed: TypeAlias = Order | Inverse | Positions | Ordered | Counts

_SORTS = {
    "aten.sort.default": (1, 2),
    "aten.sort.stable": (99, 99),
    "aten.argsort.default": (1, 2),
    "aten.argsort.stable": (99, 99),
}
_COPIES = frozenset(
    {
        "aten._to_copy.default",
        "aten.clone.default",
        "aten.to.dtype",
        "aten.alias.default",
    }
)
_EXACT = frozenset({"int32", "int64", "float32", "float64"})
# From here on not every whole number is a float32.
_MOST_KEYS = 2**20
_GROUPED = frozenset(
    {"aten._grouped_mm.default", "transformers.grouped_mm_fallback.default"}
)
_LIKE = frozenset({"aten.empty_like.default", "aten.zeros_like.default"})
# Those depend on strides, and so on sizes.
_LEFT_OUT = ("aten.contiguous.", "aten.reshape", "aten.flatten.", "aten.view")


def origin(placed: Placed) -> str:
    """The operation that `begin` was asked about."""
    return placed.operation if isinstance(placed, Positions) else placed.by.operation


def begin(call: Call, bound: int | None) -> tuple[Placed, ...] | None:
    """What a sort of rows, or numbers up to how many there are, gives; else None.

    `bound` is that of the sorted numbers, if it is known.
    """
    operator = call.operation.operator
    if operator.startswith("aten.arange."):
        return _positions(call)
    if operator not in _SORTS or call.tensor().rank != 1:
        return None
    if call.tensor().fact != Rows(0):
        return None
    along, downwards = _SORTS[operator]
    if call.axis(1, along, "dim", -1) != 0:
        return None
    descending = call.argument(downwards, "descending", False) is not False
    by = Sorting(
        call.operation.name, call.tensor().shape[0], None if descending else bound
    )
    if ".argsort." in operator:
        return (Order(by),)
    return Ordered(0, by, keys=True), Order(by)


def _positions(call: Call) -> tuple[Placed, ...] | None:
    result = call.result()
    match call.operation.arguments:
        case (end,) | (0, end) | (0, end, 1):
            size = as_size(end)
        case _:
            return None
    if size is None or result is None or result.type.dtype not in ("int32", "int64"):
        return None
    if size.dimensions != (call.dimension,) or result.type.shape != (size,):
        return None
    return (Positions(size, call.operation.name),)


def follow(
    call: Call, placed: Mapping[str, Placed], apply: Callable[[Call], tuple[Fact, ...]]
) -> tuple[Placed | Fact, ...]:
    """What an operation gives of which some operands are `placed`, others in `call`.

    Raises RefusedError where nothing is known of it.
    """
    operator = call.operation.operator
    kinds = [placed.get(name) for name in _names(call.operation)]
    match operator, kinds:
        case ("aten.floor_divide.default" | "aten.div.Tensor_mode", [Order() as order]):
            return (_divided(call, order),)
        case ("aten.argsort.default" | "aten.sort.default", [Order(by, 1)]) if (
            call.argument(2, "descending", False) is False
        ):
            found = Inverse(by)
            if ".argsort." in operator:
                return (found,)
            return Positions(by.places, by.operation), found
        case ("aten.histc.default", [Ordered(_, by, True)]):
            return (_counted(call, by),)
        case ("aten.cumsum.default", [Counts(by, False)]):
            return (Counts(by, ends=True),)
        case (name, [Counts() as counts]) if name in _COPIES and _exact(call):
            return (counts,)
        case (name, [Order() | Inverse()]) if name in _LIKE:
            fact = fact_of_shape(call.shape(), call.dimension)
            if isinstance(fact, Rows):
                return (fact,)
        case (name, [Ordered(0) as rows, None, Counts() as ends]) if name in _GROUPED:
            return (_grouped(call, rows, ends),)
        case ("aten.index.Tensor" | "aten.index_select.default", [source, by_index]):
            found_fact = _picked(call, source, by_index, placed)
            if found_fact is not None:
                return (found_fact,)
        case ("aten.index_put_.default", [None, Order(by, 1), values]):
            return (_inverted(call, by, values),)
        case (
            "aten.index_add.default" | "aten.index_add_.default",
            [None, Order() as order, Ordered(0, by)],
        ) if order.by == by:
            return (_added(call, order),)
    return _each_place(call, placed, apply)


def _names(operation: Operation) -> list[str]:
    found: list[str] = []
    pending: list[Argument] = [
        *operation.arguments,
        *(argument for _, argument in operation.keywords),
    ]
    while pending:
        match pending.pop(0):
            case Reference(name):
                found.append(name)
            case tuple() as items:
                pending = [*items, *pending]
    return found


def _exact(call: Call) -> bool:
    result = call.result()
    return result is not None and result.type.dtype in _EXACT


def _divided(call: Call, order: Order) -> Order:
    divisor = call.argument(1, "other")
    mode = dict(call.operation.keywords).get("rounding_mode", "floor")
    if type(divisor) is not int or divisor < 1 or mode not in ("floor", "trunc"):
        raise RefusedError("divides an order by something else than a whole number")
    if divide(order.by.places, Size(order.divisor * divisor)) is None:
        raise RefusedError("divides an order by what does not divide its places")
    return Order(order.by, order.divisor * divisor)


def _counted(call: Call, by: Sorting) -> Counts:
    """`histc` with a bin for each key counts exactly, whatever the order is."""
    bins, low = call.argument(1, "bins"), call.argument(2, "min")
    high = call.argument(3, "max")
    if by.keys is None or not 2 <= by.keys <= _MOST_KEYS:
        raise RefusedError("counts keys that may be others than numbers of groups")
    if (bins, low, high) != (by.keys, 0, by.keys - 1):
        raise RefusedError("counts with bins that are not one for each key")
    return Counts(by)


def _grouped(call: Call, rows: Ordered, ends: Counts) -> Ordered:
    """Each run of places is multiplied with its own matrix."""
    source, weight = call.operation.arguments[0], call.tensor(1, "mat2")
    if not isinstance(source, Reference) or rows.by != ends.by or not ends.ends:
        raise RefusedError("multiplies groups of another order than that of the rows")
    if not isinstance(weight.fact, Shared) or weight.rank != 3:
        raise RefusedError("a weight of the groups is split")
    if weight.shape[0] != Size(rows.by.keys or 0):
        raise RefusedError("multiplies with more or fewer matrices than there are keys")
    if call.argument(3, "bias") is not None:
        raise RefusedError("adds a bias to groups")
    return Ordered(0, rows.by)


def _picked(
    call: Call,
    source: Placed | None,
    index: Placed | None,
    placed: Mapping[str, Placed],
) -> Placed | Fact | None:
    """What one index along one axis picks, by an order or its inverse; else None."""
    arguments = call.operation.arguments
    match arguments:
        case (Reference(name), tuple() as items):
            used = [k for k, item in enumerate(items) if item is not None]
            if len(used) != 1:
                return None
            axis = used[0]
        case (Reference(name), int() as axis, Reference()):
            pass
        case _:
            return None
    match source, index:
        case Ordered(place, by), Inverse(other) if (
            by == other and _front(axis, call) == place
        ):
            return Rows(place)
        case None, Order(by, divisor):
            tensor = call.tensors[name]
            if tensor.fact != Rows(front_axis(axis, tensor.rank)):
                return None
            place = front_axis(axis, tensor.rank)
            if tensor.shape[place] * Size(divisor) != by.places:
                raise RefusedError("picks rows by an order of another number of them")
            return Ordered(place, by)
    return None


def _front(axis: int, call: Call) -> int:
    return front_axis(axis, len(call.shape()))


def _inverted(call: Call, by: Sorting, values: Placed | None) -> Inverse:
    """Writing the numbers in sequence to where an order says gives its inverse."""
    indices = call.argument(1, "indices")
    given = call.argument(2, "values")
    if not isinstance(indices, tuple) or len(indices) != 1:
        raise RefusedError("writes by an order and something else")
    if call.argument(3, "accumulate", False) is not False:
        raise RefusedError("adds to what is there by an order")
    if values is None and isinstance(given, Reference):
        numbers = call.tensors[given.name]
        if numbers.fact == RowNumbers(0) and numbers.shape == (by.places,):
            values = Positions(by.places, "")
    target = call.tensor()
    if not isinstance(values, Positions) or values.places != by.places:
        raise RefusedError("writes by an order what is not the numbers of places")
    if target.shape != (by.places,):
        raise RefusedError("writes by an order what is not the numbers of places")
    return Inverse(by)


def _added(call: Call, order: Order) -> Fact:
    """Each place is added to the row that it is of, in whatever order."""
    target = call.tensor()
    axis = call.axis(target.rank, 1, "dim")
    if target.fact != Rows(axis) or axis != 0:
        raise RefusedError("adds places to something else than their rows")
    if target.shape[0] * Size(order.divisor) != order.by.places:
        raise RefusedError("adds places to another number of rows")
    return target.fact


def _each_place(
    call: Call, placed: Mapping[str, Placed], apply: Callable[[Call], tuple[Fact, ...]]
) -> tuple[Placed | Fact, ...]:
    """Judge an operation by the rules for rows, with the places as their dimension."""
    operation = call.operation
    if operation.operator.startswith(_LEFT_OUT):
        raise RefusedError("looks at the layout of places")
    kinds = list(placed.values())
    first = kinds[0]
    if not isinstance(first, Ordered):
        raise RefusedError("computes with an order")
    by = first.by
    dimension = f"places of {by.operation}"
    tensors: dict[str, Tensor] = {}
    for name, tensor in call.tensors.items():
        kind = placed.get(name)
        if kind is None:
            if not isinstance(tensor.fact, Shared):
                raise RefusedError("computes with rows and with places")
            tensors[name] = tensor
            continue
        if not isinstance(kind, Ordered) or kind.by != by:
            raise RefusedError("computes with places of two orders")
        value = _renamed(tensor.value, by.places, dimension)
        tensors[name] = Tensor(value, Rows(kind.axis))
    results = tuple(
        None if value is None else _renamed(value, by.places, dimension)
        for value in operation.results
    )
    renamed = replace(
        operation,
        arguments=tuple(
            _argument(item, by.places, dimension) for item in operation.arguments
        ),
        keywords=tuple(
            (key, _argument(item, by.places, dimension))
            for key, item in operation.keywords
        ),
        results=results,
    )
    sizes = (*renamed.arguments, *(item for _, item in renamed.keywords))
    left = any(
        call.dimension in size.dimensions
        for value in (*results, *(t.value for t in tensors.values()))
        if value is not None
        for size in value.type.shape
    )
    if left or mentions(sizes, call.dimension):
        raise RefusedError("computes with rows and with places")
    facts = apply(Call(renamed, tensors, dimension))
    copies = operation.operator in _COPIES and first.keys and _exact(call)
    return tuple(_placed(fact, by, keys=copies) for fact in facts)


def _placed(fact: Fact, by: Sorting, *, keys: bool) -> Placed | Fact:
    match fact:
        case Shared():
            return fact
        case Rows(axis, outer) if outer == ONE:
            return Ordered(axis, by, keys=keys)
    raise RefusedError("takes places apart")


def _renamed(value: Value, places: Size, dimension: str) -> Value:
    """A value whose places are a dimension of their own."""
    shape = tuple(
        Size(1, (dimension,)) if size == places else size for size in value.type.shape
    )
    type_ = TensorType(shape, value.type.strides, value.type.dtype)
    return replace(value, type=type_)


def _argument(argument: Argument, places: Size, dimension: str) -> Argument:
    match argument:
        case Size() if argument == places:
            return Size(1, (dimension,))
        case tuple():
            return tuple(_argument(item, places, dimension) for item in argument)
        case _:
            return argument
