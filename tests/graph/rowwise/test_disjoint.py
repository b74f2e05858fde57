"""Shared tensors in which the rows of microbatches keep apart, as the target says."""

from __future__ import annotations

from dynaflow_dsl.graph.model import Reference
from dynaflow_dsl.graph.rowwise import RowCheck, Rows, Shared, check_rows
from tests.graph.rowwise.building import Builder
from tests.graph.rowwise.tracing import rows, shared, whole_numbers

POOL = "input_0"


def written_pool() -> tuple[Builder, Reference, Reference]:
    """A pool of 8 pages of 4 numbers, and the page of each row, which it writes."""
    build = Builder()
    pool = build.input(shared(8, 4))
    page = build.input(whole_numbers(8, "batch"))
    values = build.input(rows(4))
    build.call("aten.index_put_.default", pool, (page,), values)
    return build, pool, page


def checked(build: Builder, result: Reference, *, declared: bool = True) -> RowCheck:
    apart = [POOL] if declared else []
    return check_rows(build.graph(result), "batch", build.names(), apart)


def test_rows_write_and_read_by_index() -> None:
    build, pool, page = written_pool()
    result = build.call("aten.index.Tensor", pool, (page,))
    check = checked(build, result)
    assert check.refusals == ()
    assert check.facts[pool.name] == Shared()
    assert check.facts[result.name] == Rows(0)
    assert checked(build, result, declared=False).refusals[0].reason == (
        "writes rows into a tensor that all microbatches share"
    )


def test_a_view_is_read_by_index_as_well() -> None:
    build, pool, page = written_pool()
    turned = build.call("aten.unsqueeze.default", pool, 1)
    result = build.call("aten.index_select.default", turned, 0, page)
    assert checked(build, result).refusals == ()


def refusal(build: Builder, result: Reference) -> str:
    (found,) = checked(build, result).refusals
    return found.reason


def test_reading_all_of_it_is_refused() -> None:
    """It holds what other microbatches have written so far, or will."""
    build, pool, _ = written_pool()
    copy = build.call("aten.relu.default", pool)
    source = build.input(rows(4))
    result = build.call(
        "aten.matmul.default", source, build.call("aten.t.default", copy)
    )
    assert "otherwise than by an index of each row" in refusal(build, result)


def test_an_index_that_is_no_rows_is_refused() -> None:
    build, pool, _ = written_pool()
    first = build.input(whole_numbers(8, 2))
    page = build.call("aten.index.Tensor", pool, (first,))
    source = build.input(rows(4))
    result = build.call(
        "aten.add.Tensor", source, build.call("aten.sum.dim_IntList", page, (0,))
    )
    assert "otherwise than by an index of each row" in refusal(build, result)


def test_a_write_that_all_share_is_refused() -> None:
    build, pool, page = written_pool()
    build.call("aten.mul_.Scalar", pool, 2)
    result = build.call("aten.index.Tensor", pool, (page,))
    assert "otherwise than by an index of each row" in refusal(build, result)


def test_a_copy_with_rows_written_into_it_is_refused() -> None:
    build = Builder()
    pool = build.input(shared(8, 4))
    page = build.input(whole_numbers(8, "batch"))
    values = build.input(rows(4))
    copy = build.call("aten.index_put.default", pool, (page,), values)
    result = build.call("aten.index.Tensor", copy, (page,))
    assert refusal(build, result) == (
        "writes rows into a tensor that all microbatches share"
    )


def test_what_nobody_writes_is_read_as_ever() -> None:
    build = Builder()
    pool = build.input(shared(8, 4))
    source = build.input(rows(4))
    result = build.call(
        "aten.matmul.default", source, build.call("aten.t.default", pool)
    )
    assert checked(build, result).refusals == ()
