"""Rows that are sorted, computed with, and put back."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dynaflow_dsl.graph.rowwise import check_rows
from tests.graph.rowwise.cases import Case, accepted, careful, check_case, refused
from tests.graph.rowwise.interpreter import difference
from tests.graph.rowwise.tracing import inputs_for, rows, shared, traced

SORT = "sort over the split dimension"
EXPERTS = 4
Tensors = torch.Tensor


def column(x: Tensors) -> Tensors:
    return x[:, 0]


def back(order: Tensors) -> Tensors:
    """The inverse of an order, as mixtures of experts make it."""
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(order.shape[0])
    return inverse


def between(
    inside: Callable[[Tensors], Tensors],
    inverse: Callable[[Tensors], Tensors] = torch.argsort,
) -> Callable[[Tensors], Tensors]:
    """Sort by the first column, compute, put back."""

    def apply(x: Tensors) -> Tensors:
        order = torch.argsort(column(x))
        return inside(x[order])[inverse(order)]

    return apply


def never_back(x: Tensors) -> Tensors:
    return torch.tanh(x[torch.argsort(column(x))])


def back_by_another(x: Tensors) -> Tensors:
    order, other = torch.argsort(x[:, 0]), torch.argsort(x[:, 1])
    return x[order][torch.argsort(other)]


def two_orders(x: Tensors) -> Tensors:
    order, other = torch.argsort(x[:, 0]), torch.argsort(x[:, 1])
    return (x[order] + x[other])[torch.argsort(order)]


def with_rows(x: Tensors) -> Tensors:
    order = torch.argsort(column(x))
    return (x[order] + x)[torch.argsort(order)]


def order_as_data(x: Tensors) -> Tensors:
    order = torch.argsort(column(x))
    return x + order[:, None]


def sorted_values(x: Tensors) -> Tensors:
    return x + torch.sort(column(x)).values[:, None]


def values_put_back(x: Tensors) -> Tensors:
    values, order = torch.sort(column(x))
    return x + torch.exp(values)[torch.argsort(order)][:, None]


def partly_written(x: Tensors) -> Tensors:
    order = torch.argsort(column(x))
    inverse = torch.zeros_like(order)
    inverse[order] = torch.arange(order.shape[0])
    view = inverse[:]
    inverse *= 0
    return x[order][view]


def in_place(x: Tensors) -> Tensors:
    order = torch.argsort(column(x))
    moved = x[order]
    moved.masked_fill_(moved[:, :1] > 0, 0.0)
    moved[:, 1].add_(1.0)
    return moved[back(order)]


def top_two(x: Tensors) -> tuple[Tensors, Tensors]:
    weights, experts = torch.topk(torch.softmax(x, -1), 2)
    return weights, experts


def routed(
    x: Tensors,
    weight: Tensors,
    *,
    bins: int = EXPERTS,
    low: int = 0,
    descending: bool = False,
    shift: int = 0,
    divisor: int = 2,
    clamped: bool = False,
    other_keys: bool = False,
    add: bool = False,
) -> Tensors:
    """A mixture of experts, as `transformers` computes it, or with a mistake."""
    weights, experts = top_two(x)
    keys = experts.reshape(-1) + shift if shift else experts.reshape(-1)
    values, order = torch.sort(keys, descending=descending)
    if clamped:
        values.clamp_(max=2)
    if other_keys:
        values = torch.sort(torch.topk(-x, 2)[1].reshape(-1)).values
    counts = torch.histc(values.float(), bins=bins, min=low, max=bins - 1)
    ends = torch.cumsum(counts, 0, dtype=torch.int32)
    moved = x[order // divisor]
    made = torch.ops.transformers.grouped_mm_fallback(moved, weight, ends)
    made = torch.relu(made) * weights.reshape(-1)[order][:, None]
    if add:
        return torch.zeros_like(x).index_add_(0, order // 2, made)
    return made[back(order)].view(-1, 2, 4).sum(1)


def with_mistake(**options: Any) -> Callable[[Tensors, Tensors], Tensors]:
    return lambda x, weight: routed(x, weight, **options)


WEIGHT = shared(EXPERTS, 4, 4)

CASES = [
    accepted("put back by a sort", between(torch.tanh), rows(4)),
    accepted("put back by numbers", between(torch.tanh, back), rows(4)),
    accepted("a norm", between(lambda x: torch.layer_norm(x, (4,))), rows(4)),
    accepted("a product", between(lambda x: x @ torch.ones(4, 4)), rows(4)),
    accepted("other axes", between(lambda x: x.softmax(-1).flip(-1)), rows(4)),
    accepted(
        "turned", between(lambda x: torch.cumsum(x.transpose(0, 1), 0).t()), rows(4)
    ),
    accepted("values put back", values_put_back, rows(4)),
    accepted("in place", in_place, rows(4)),
    accepted(
        "sort all over",
        lambda x: between(torch.sin)(between(torch.tanh)(x)),
        rows(4),
    ),
    refused("never back", SORT, never_back, rows(4)),
    refused("with rows", SORT, with_rows, rows(4)),
    refused("an order as data", SORT, order_as_data, rows(4)),
    refused("sorted values", SORT, sorted_values, rows(4)),
    refused("a sum of places", SORT, between(lambda x: x - x.mean(0)), rows(4)),
    refused("a scan of places", SORT, between(lambda x: x.cumsum(0)), rows(4)),
    refused("shifted places", SORT, between(lambda x: x.roll(1, 0)), rows(4)),
    refused("places with places", SORT, between(lambda x: x @ x.t() @ x), rows(4)),
    refused(
        "the inverse backwards",
        SORT,
        between(torch.tanh, lambda x: torch.argsort(x, descending=True)),
        rows(4),
    ),
    refused("backwards", SORT, between(torch.tanh, lambda x: x.flip(0)), rows(4)),
    refused("an inverse that changed", SORT, partly_written, rows(4)),
    accepted("experts", routed, rows(4), WEIGHT),
    accepted("experts, added", with_mistake(add=True), rows(4), WEIGHT),
    refused("descending keys", SORT, with_mistake(descending=True), rows(4), WEIGHT),
    careful("keys beyond the bins", SORT, with_mistake(shift=1), rows(4), WEIGHT),
    careful("clamped keys", SORT, with_mistake(clamped=True), rows(4), WEIGHT),
    careful("bins from below", SORT, with_mistake(low=-1), rows(4), WEIGHT),
    refused("each third row", SORT, with_mistake(divisor=3), rows(4), WEIGHT),
]
BOTH = {
    "back by another order": (back_by_another, (rows(4),)),
    "two orders": (two_orders, (rows(4),)),
    "counts of other keys": (with_mistake(other_keys=True), (rows(4), WEIGHT)),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_permutation(case: Case) -> None:
    import transformers.integrations.moe  # noqa: F401  registers the operator

    check_case(case)


@pytest.mark.parametrize("name", BOTH)
def test_of_two_orders_both_are_refused(name: str) -> None:
    function, given = BOTH[name]
    torch.manual_seed(0)
    graph = traced(function, given)
    region = [operation.name for operation in graph.operations]
    refusals = check_rows(graph, "batch", region).refusals
    assert {item.reason.split()[0].removeprefix("arg") for item in refusals} == {"sort"}
    assert len(refusals) == 2
    assert difference(graph, region, inputs_for(graph, given)) is not None
