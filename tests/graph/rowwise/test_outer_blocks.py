"""Rows behind another axis: merged, cut and split again, by hand-made graphs."""

from collections.abc import Callable
from typing import Any

import pytest

from dynaflow_dsl.graph.model import Reference, Size
from dynaflow_dsl.graph.rowwise import Rows, check_rows
from tests.graph.rowwise.building import BATCH, Builder
from tests.graph.rowwise.cases import check_graph
from tests.graph.rowwise.tracing import Given, rows, shared

THREE = Size(3, ("batch",))


def merged(build: Builder) -> Any:
    """Rows [3 * batch, 4] in three blocks."""
    source = build.input(rows(3, 4))
    turned = build.call("aten.transpose.int", source, 0, 1)
    return build.call("aten.reshape.default", turned, (THREE, 4))


def relu(build: Builder, source: Reference) -> Any:
    return build.call("aten.relu.default", source)


def back(build: Builder, source: Reference) -> Any:
    return relu(build, build.call("aten.view.default", source, (3, BATCH, 4)))


def guided(build: Builder) -> Any:
    source = build.input(rows(4))
    return build.call("aten.cat.default", (source, relu(build, source)))


def put_back(build: Builder) -> Any:
    return back(build, relu(build, merged(build)))


def sum_inside(build: Builder) -> Any:
    total = build.call("aten.sum.dim_IntList", merged(build), (1,))
    return relu(build, build.call("aten.view.default", total, (3, BATCH)))


def halves(build: Builder) -> Any:
    return build.call(
        "aten.mul.Tensor", *build.call("aten.chunk.default", guided(build), 2)
    )


def halves_at_batch(build: Builder) -> Any:
    pieces = build.call("aten.split.Tensor", guided(build), BATCH)
    return build.call("aten.mul.Tensor", *pieces)


def second_half(build: Builder) -> Any:
    end = Size(2, ("batch",))
    return relu(build, build.call("aten.slice.Tensor", guided(build), 0, BATCH, end))


def gathered_twice(build: Builder) -> Any:
    twice = build.call("aten.repeat.default", build.input(rows(4)), (3, 1))
    return back(build, twice)


def interleaved(build: Builder) -> Any:
    source = build.input(rows(4))
    bias = build.call(
        "aten.repeat_interleave.self_int", build.input(shared(3, 4)), BATCH, 0
    )
    twice = build.call("aten.repeat.default", source, (3, 1))
    return back(build, build.call("aten.add.Tensor", twice, bias))


def gapped_reshape(build: Builder) -> Any:
    source = build.input(Given((3, "batch", 4)))
    return back(build, build.call("aten.reshape.default", source, (THREE, 4)))


@pytest.mark.parametrize(
    "make",
    [
        put_back,
        sum_inside,
        halves,
        halves_at_batch,
        second_half,
        gathered_twice,
        interleaved,
        gapped_reshape,
    ],
)
def test_accepted(make: Callable[[Builder], Any]) -> None:
    build = Builder()
    result = make(build)
    check_graph(build.graph(result), build.names(), build.tensors())


def leaving(build: Builder) -> Any:
    return relu(build, merged(build))


def wrong_rows(build: Builder) -> Any:
    other = build.call("aten.reshape.default", build.input(rows(3, 4)), (THREE, 4))
    return build.call("aten.add.Tensor", merged(build), other)


def cut_through(build: Builder) -> Any:
    source = relu(build, build.input(rows(4)))
    return relu(build, build.call("aten.view.default", source, (4, BATCH)))


def fast_axis(build: Builder) -> Any:
    return relu(
        build, build.call("aten.reshape.default", build.input(rows(3)), (3, BATCH))
    )


def gapped_view(build: Builder) -> Any:
    source = build.input(Given((3, "batch", 4)))
    return back(build, build.call("aten.view.default", source, (THREE, 4)))


def half_a_block(build: Builder) -> Any:
    source = build.input(rows(4, 2))
    flat = build.call("aten.view.default", source, (Size(4, ("batch",)), 2))
    return relu(build, build.call("aten.split.Tensor", flat, Size(2, ("batch",)))[0])


def one_row_squeezed(build: Builder) -> Any:
    return relu(build, build.call("aten.squeeze.dim", build.input(rows(4)), 0))


def table_cut(build: Builder) -> Any:
    source, table = build.input(rows(4)), build.input(shared(20, 4))
    cut = build.call("aten.slice.Tensor", table, 0, 0, BATCH)
    return build.call("aten.add.Tensor", source, cut)


def positions_cut(build: Builder) -> Any:
    source = build.input(shared(20, 4))
    rows_ = build.input(rows(4))
    cut = build.call("aten.narrow.default", source, 0, 0, BATCH)
    return build.call("aten.add.Tensor", rows_, cut)


def mixed_cat(build: Builder) -> Any:
    joined = build.call("aten.cat.default", (guided(build), build.input(rows(4))))
    return relu(build, joined)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (leaving, "do not lie together"),
        (wrong_rows, "different axes"),
        (cut_through, "cuts through rows"),
        (fast_axis, "cuts through rows"),
        (gapped_view, "merges the split dimension"),
        (half_a_block, "into pieces"),
        (one_row_squeezed, "microbatch of one row"),
        (table_cut, "cuts another axis"),
        (positions_cut, "cuts another axis"),
        (mixed_cat, "not all split"),
    ],
)
def test_refused(make: Callable[[Builder], Any], reason: str) -> None:
    build = Builder()
    result = make(build)
    check_graph(build.graph(result), build.names(), build.tensors(), reason)


def test_facts_count_outer_blocks() -> None:
    build = Builder()
    blocks = merged(build)
    graph = build.graph(back(build, blocks))
    facts = check_rows(graph, "batch", build.names()).facts
    assert facts[blocks.name] == Rows(0, Size(3))
    assert facts[graph.outputs[0]] == Rows(1)


def test_no_dimension_of_that_name() -> None:
    build = Builder()
    graph = build.graph(relu(build, build.input(rows(4))))
    with pytest.raises(ValueError, match="no dimension tokens"):
        check_rows(graph, "tokens", build.names())
