"""Operators that pick or write places by index tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dynaflow_dsl.graph.model import Reference, Size
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    RowNumbers,
    Rows,
    Rule,
    Shared,
    Tensor,
    only_rows,
)
from dynaflow_dsl.graph.rowwise.pointwise import align, broadcast
from dynaflow_dsl.graph.rowwise.sizes import ONE


def embedding(call: Call) -> Fact:
    """Look rows of a table up; the width is added as the last axis."""
    if only_rows(call.tensor(0, "weight")) is not None:
        raise RefusedError("the embedding table is split")
    rows = only_rows(call.tensor(1, "indices"))
    return Shared() if rows is None else rows


@dataclass(frozen=True, slots=True)
class _Lookup:
    """What `x[i, j, :, k]` addresses: its shape and how that is split."""

    shape: tuple[Size, ...]
    fact: Fact


def _lookup(call: Call) -> _Lookup:
    """Return what a list of index tensors (None is a whole axis) addresses.

    The index tensors are broadcast together. Their axes stand where they are used when
    that is one run of axes, else in front.
    """
    source = call.tensor()
    items = call.argument(1, "indices")
    if not isinstance(items, tuple) or len(items) > source.rank:
        raise RefusedError("an index that is not a list of tensors")
    used: dict[int, Tensor] = {}
    for axis, item in enumerate(items):
        if isinstance(item, Reference):
            used[axis] = call.tensors[item.name]
        elif item is not None:
            raise RefusedError("an index that is not a list of tensors")
    if any(index.value.type.dtype in ("bool", "uint8") for index in used.values()):
        raise RefusedError("picks as many elements as a mask has, over all rows")
    if not used:
        return _Lookup(source.shape, source.fact)
    common = broadcast([index.shape for index in used.values()])
    first = min(used)
    together = max(used) - first + 1 == len(used)
    place = first if together else 0
    rest = [axis for axis in range(source.rank) if axis not in used]
    shape = [source.shape[axis] for axis in rest]
    shape[place:place] = common
    fact = _index_fact(source, used, common)
    if isinstance(fact, Rows):
        return _Lookup(tuple(shape), Rows(fact.axis + place, fact.outer))
    rows = only_rows(source)
    if rows is None:
        return _Lookup(tuple(shape), Shared())
    kept = rest.index(rows.axis)
    return _Lookup(tuple(shape), Rows(kept + len(common) * (kept >= place), rows.outer))


def _index_fact(
    source: Tensor, used: dict[int, Tensor], common: tuple[Size, ...]
) -> Fact:
    """Return how the index tensors are split together, or refuse to mix rows.

    Row numbers are right only for the row axis itself, where each row then finds
    itself: there they count as rows.
    """
    rows = only_rows(source)
    operands: list[tuple[tuple[Size, ...], Fact]] = []
    for axis, index in used.items():
        fact = index.fact
        if rows is not None and axis == rows.axis:
            if not isinstance(fact, RowNumbers):
                raise RefusedError("picks rows of the split dimension by an index")
            if rows.outer != ONE or len(source.shape[axis].dimensions) != 1:
                raise RefusedError("picks by row numbers where rows are not single")
            if source.shape[axis].factor != 1:
                raise RefusedError("picks by row numbers where rows are not single")
            fact = Rows(fact.axis, fact.outer)
        operands.append((index.shape, fact))
    fact = align(operands, common)
    if rows is not None and isinstance(fact, Rows) and rows.axis not in used:
        raise RefusedError("picks elements of all rows by each row's index")
    return fact


def index(call: Call) -> Fact:
    """Read by index tensors."""
    return _lookup(call).fact


def index_put(call: Call) -> Fact:
    """Write by index tensors; written values are broadcast to what is addressed."""
    if _is_masked_fill(call):
        return _masked_fill(call)
    target, values = call.tensor(), call.tensor(2, "values")
    place = _lookup(call)
    written = align(
        [(place.shape, place.fact), (values.shape, values.fact)], place.shape
    )
    if written != place.fact:
        raise RefusedError("writes values that are split along another axis")
    if isinstance(target.fact, Shared) and written != Shared() and not target.disjoint:
        raise RefusedError("writes rows into a tensor that all microbatches share")
    return target.fact


def _is_masked_fill(call: Call) -> bool:
    match call.argument(1, "indices"):
        case (Reference(name),):
            return call.tensors[name].value.type.dtype == "bool"
        case _:
            return False


def _masked_fill(call: Call) -> Fact:
    """`x[mask] = number`: each element looks at the mask at its own place."""
    (mask,) = call.tensor_list(1, "indices")
    target, values = call.tensor(), call.tensor(2, "values")
    rows = only_rows(target)
    if rows is None or only_rows(mask) != rows or only_rows(values) is not None:
        raise RefusedError("writes by a mask that is not split like its target")
    if mask.shape != target.shape[: mask.rank] or any(s != ONE for s in values.shape):
        raise RefusedError("writes one value after the other where a mask holds")
    return rows


def index_select(call: Call) -> Fact:
    """Pick places along one axis."""
    source, fact = call.tensor(), call.tensor(2, "index").fact
    axis = call.axis(source.rank, 1, "dim")
    rows = only_rows(source)
    if rows is None:
        only_rows(call.tensor(2, "index"))
        return Rows(axis, fact.outer) if isinstance(fact, Rows) else Shared()
    if not isinstance(fact, Shared):
        raise RefusedError("picks elements of all rows by each row's index")
    if axis == rows.axis:
        raise RefusedError("picks rows of the split dimension by an index")
    return rows


def gather(call: Call) -> Fact:
    """Pick along one axis, with one index for each place of the others."""
    source, places = call.tensor(), call.tensor(2, "index")
    axis = call.axis(source.rank, 1, "dim")
    rows, index_rows = only_rows(source), only_rows(places)
    if rows is None and index_rows is not None and index_rows.axis == axis:
        return index_rows
    _same_places(axis, source, places)
    assert rows is not None
    return rows


def _same_places(axis: int, *tensors: Tensor) -> None:
    """Make sure that all tensors have the same rows, and not along `axis`."""
    facts = {only_rows(tensor) for tensor in tensors}
    rows = facts.pop()
    if rows is None or facts:
        raise RefusedError("mixes tensors that are not all split along the same axis")
    if rows.axis == axis:
        raise RefusedError("picks rows of the split dimension by an index")
    if len({tensor.shape[rows.axis] for tensor in tensors}) > 1:
        raise RefusedError("mixes tensors with different numbers of rows")


def scatter(call: Call) -> Fact:
    """Write along one axis, with one index for each place of the others."""
    target, places = call.tensor(), call.tensor(2, "index")
    axis = call.axis(target.rank, 1, "dim")
    tensors = [target, places]
    if isinstance(call.argument(3, "src"), Reference):
        tensors.append(call.tensor(3, "src"))
    _same_places(axis, *tensors)
    return target.fact


def index_copy(call: Call) -> Fact:
    """Write whole places of one axis, the same places in all rows.

    Into memory in which each row has places of its own, each row writes those.
    """
    target, places = call.tensor(), call.tensor(2, "index")
    axis = call.axis(target.rank, 1, "dim")
    if target.disjoint and isinstance(target.fact, Shared):
        rows, source = only_rows(places), call.tensor(3, "source")
        if rows is None or only_rows(source) != replace(rows, axis=axis):
            raise RefusedError("writes values that are split along another axis")
        if places.rank != 1 or source.shape[axis] != places.shape[0]:
            raise RefusedError("writes values that are split along another axis")
        return target.fact
    if only_rows(places) is not None:
        raise RefusedError("writes at places that differ between rows")
    _same_places(axis, target, call.tensor(3, "source"))
    return target.fact


def index_fill(call: Call) -> Fact:
    """Write one number at places of one axis, the same places in all rows."""
    target, rows = call.tensor(), only_rows(call.tensor())
    if only_rows(call.tensor(2, "index")) is not None:
        raise RefusedError("writes at places that differ between rows")
    if isinstance(call.argument(3, "value"), Reference):
        only_rows(call.tensor(3, "value"))
    if rows is not None and call.axis(target.rank, 1, "dim") == rows.axis:
        raise RefusedError("writes rows of the split dimension by an index")
    return target.fact


def _both(name: str, overloads: str, rule: Rule) -> dict[str, Rule]:
    """List an operator and its in-place form."""
    return {
        f"aten.{name}{form}.{overload}": rule
        for form in ("", "_")
        for overload in overloads.split()
    }


RULES = {
    "aten.embedding.default": Rule(embedding),
    "aten.index.Tensor": Rule(index),
    "aten.index_select.default": Rule(index_select),
    "aten.gather.default": Rule(gather),
    **_both("index_put", "default", Rule(index_put, in_place=True)),
    **_both("scatter", "src value reduce value_reduce", Rule(scatter, in_place=True)),
    **_both("scatter_add", "default", Rule(scatter, in_place=True)),
    **_both("scatter_reduce", "two", Rule(scatter, in_place=True)),
    **_both("index_copy", "default", Rule(index_copy, in_place=True)),
    **_both("index_add", "default", Rule(index_copy, in_place=True)),
    **_both("index_fill", "int_Scalar int_Tensor", Rule(index_fill, in_place=True)),
}
