"""Which graphs of ranks may differ, and how: in numbers, and in nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dynaflow_dsl.bind.agreement import RankDigests, rank_digests
from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.graph.model import (
    Graph,
    Input,
    Operation,
    Reference,
    Size,
    TensorType,
    Value,
)

BATCH = Size(1, ("batch",))


def type_(*shape: Size | int, dtype: str = "float32") -> TensorType:
    sizes = tuple(s if isinstance(s, Size) else Size(s) for s in shape)
    return TensorType(sizes, sizes, dtype)


def operation(
    name: str,
    operator: str,
    arguments: tuple[Any, ...],
    result: TensorType,
    keywords: tuple[tuple[str, Any], ...] = (),
) -> Operation:
    return Operation(
        name=name,
        operator=operator,
        arguments=arguments,
        keywords=keywords,
        results=(Value(name, result, hash(name)),),
        multiple=False,
        writes=(),
        view=False,
        tags=(),
        module="embed",
        source=None,
    )


def rank(
    first: int = 0,
    rows: int = 64,
    width: int = 8,
    group: str = "tp",
    reduce: str = "sum",
    scale: float = 1.0,
    mask: bool = True,
    twice: bool = False,
    operator: str = "aten.sub.Tensor",
    dtype: str = "float32",
    size: Size = BATCH,
    order: tuple[str, ...] = ("sum", "gather"),
) -> Graph:
    """An embedding whose rows are shared out, on the rank that holds some of them."""
    table = Value("w", type_(rows, width, dtype=dtype), 1)
    tokens = Value("ids", type_(BATCH, dtype="int64"), 2)
    found = type_(size, width, dtype=dtype)
    one = Reference("scaled")
    collectives = {
        "sum": operation(
            "sum",
            "_c10d_functional.all_reduce.default",
            (one, reduce, group),
            found,
        ),
        "gather": operation(
            "gather",
            "_c10d_functional.all_gather_into_tensor.default",
            (one, 2, "world"),
            type_(Size(2, ("batch",)), width, dtype=dtype),
        ),
    }
    operations = [
        operation("near", operator, (Reference("ids"), first), tokens.type),
        operation(
            "taken",
            "aten.embedding.default",
            (Reference("w"), Reference("near")),
            found,
            (("sparse", mask),),
        ),
        operation("scaled", "aten.mul.Tensor", (Reference("taken"), scale), found),
        *[collectives[name] for name in order],
    ]
    if twice:
        operations.append(replace(operations[-1], name="again"))
    return Graph(
        entry="forward",
        inputs=(
            Input("embed.weight", "parameter", table),
            Input("ids", "step", tokens, argument=0),
        ),
        operations=tuple(operations),
        outputs=("sum",),
        dimensions=(("batch", 1, None),),
        signature=(("ids", None),),
        modules=("", "embed"),
    )


def digests(graph: Graph) -> RankDigests:
    found = rank_digests(graph)
    assert found is not None
    return found


ALLOWED: dict[str, Callable[[], Graph]] = {
    "the first row that is held": lambda: rank(first=64),
    "how many rows are held": lambda: rank(rows=60),
    "a factor": lambda: rank(scale=0.5),
    "the name of a group": lambda: rank(group="7"),
}
NOT_ALLOWED: dict[str, Callable[[], tuple[Graph, str]]] = {
    "what is computed": lambda: (rank(operator="aten.add.Tensor"), "operations"),
    "a truth value": lambda: (rank(mask=False), "operations"),
    "a dtype": lambda: (rank(dtype="bfloat16"), "both"),
    "a number and a size": lambda: (rank(size=Size(4)), "both"),
    "one more collective": lambda: (rank(twice=True), "both"),
    "one collective less": lambda: (rank(order=("sum",)), "both"),
    "the order of collectives": lambda: (rank(order=("gather", "sum")), "both"),
    "what is reduced by": lambda: (rank(reduce="max"), "both"),
    "the shape in a collective": lambda: (rank(width=16), "collectives"),
    "one group for two": lambda: (rank(group="world"), "both"),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_numbers_of_its_own_are_a_ranks_affair(what: str) -> None:
    graph = ALLOWED[what]()
    assert graph_digest(graph) != graph_digest(rank())
    assert digests(graph) == digests(rank())


@pytest.mark.parametrize("what", NOT_ALLOWED)
def test_anything_else_is_not(what: str) -> None:
    graph, which = NOT_ALLOWED[what]()
    found, usual = digests(graph), digests(rank())
    assert (found.operations != usual.operations) == (which in ("operations", "both"))
    assert (found.collectives != usual.collectives) == (
        which in ("collectives", "both")
    )


def test_a_graph_without_collectives_has_none() -> None:
    assert rank_digests(rank(order=())) is None
