"""In-place writes: caches, shared tensors, views of what is written."""

from collections.abc import Callable

import pytest
import torch

from dynaflow_dsl.graph.model import Reference, Size
from tests.graph.rowwise.building import BATCH, Builder
from tests.graph.rowwise.cases import (
    Case,
    accepted,
    check_case,
    check_graph,
    refused,
)
from tests.graph.rowwise.tracing import Given, rows, shared, whole_numbers

Made = tuple[tuple[Reference, ...], tuple[str, ...]]


def outputs(*references: Reference, outside: tuple[str, ...] = ()) -> Made:
    return references, outside


def relu(build: Builder, source: Reference) -> Reference:
    result: Reference = build.call("aten.relu.default", source)
    return result


def cache(build: Builder) -> Made:
    keys, new = build.input(rows(2, 6, 4)), build.input(rows(2, 1, 4))
    slot = build.input(whole_numbers(6, 1))
    build.call("aten.index_copy_.default", keys, 2, slot, new)
    return outputs(
        build.call("aten.matmul.default", new, build.call("aten.mT.default", keys))
    )


def stacked_cache(build: Builder) -> Made:
    caches = build.input(Given((3, "batch", 6, 4)))
    new, slot = build.input(rows(1, 4)), build.input(whole_numbers(6, 1))
    for layer in range(3):
        keys = build.call("aten.select.int", caches, 0, layer)
        build.call("aten.index_copy_.default", keys, 1, slot, new)
        new = build.call("aten.sum.dim_IntList", keys, (1,), True)
    return outputs(new)


def stacked_cache_cut_outside(build: Builder) -> Made:
    references, _ = stacked_cache(build)
    return outputs(*references, outside=("op_0", "op_3", "op_6"))


def own_buffer(build: Builder) -> Made:
    source = build.input(rows(4))
    buffer = build.call("aten.zeros.default", (BATCH, 6))
    part = build.call("aten.slice.Tensor", buffer, 1, 1, 5)
    build.call("aten.copy_.default", part, source)
    build.call("aten.add_.Tensor", buffer, 1)
    return outputs(relu(build, buffer))


def own_shared_buffer(build: Builder) -> Made:
    source, weight = build.input(rows(4)), build.input(shared(4))
    buffer = build.call("aten.zeros.default", (4,))
    build.call("aten.add_.Tensor", buffer, weight)
    return outputs(build.call("aten.add.Tensor", source, buffer))


def expanded_after_write(build: Builder) -> Made:
    source = build.input(rows(4))
    buffer = build.call("aten.zeros.default", (1, 4))
    wide = build.call("aten.expand.default", buffer, (BATCH, 4))
    build.call("aten.add_.Tensor", buffer, 1)
    return outputs(build.call("aten.add.Tensor", source, wide))


def each_row_its_place(build: Builder) -> Made:
    keys, new = build.input(rows(6, 4)), build.input(rows(4))
    places = build.input(whole_numbers(6, "batch"))
    numbers = build.call("aten.arange.default", BATCH)
    build.call("aten.index_put_.default", keys, (numbers, places), new)
    return outputs(relu(build, keys))


def written_outside_before(build: Builder) -> Made:
    source = build.input(rows(4))
    build.call("aten.add_.Tensor", source, 1)
    return outputs(relu(build, source), outside=("op_0",))


def written_inside_then_read_outside(build: Builder) -> Made:
    source = build.input(rows(4))
    made = relu(build, source)
    build.call("aten.add_.Tensor", made, 1)
    return outputs(build.call("aten.mean.dim", made, (0,)), outside=("op_2",))


def copy_written_unseen(build: Builder) -> Made:
    source = build.input(rows(3, 4))
    turned = build.call("aten.transpose.int", relu(build, source), 1, 2)
    copy = build.call("aten.reshape.default", turned, (BATCH, 12))
    build.call("aten.add_.Tensor", copy, 1)
    return outputs(relu(build, copy))


@pytest.mark.parametrize(
    "make",
    [
        cache,
        stacked_cache,
        stacked_cache_cut_outside,
        own_buffer,
        own_shared_buffer,
        expanded_after_write,
        each_row_its_place,
        written_outside_before,
        written_inside_then_read_outside,
        copy_written_unseen,
    ],
)
def test_accepted(make: Callable[[Builder], Made]) -> None:
    build = Builder()
    references, outside = make(build)
    region = [name for name in build.names() if name not in outside]
    check_graph(build.graph(*references), region, build.tensors())


def counter(build: Builder) -> Made:
    source, count = build.input(rows(4)), build.input(shared(1))
    build.call("aten.add_.Tensor", count, 1)
    return outputs(build.call("aten.add.Tensor", source, count))


def counter_through_a_view(build: Builder) -> Made:
    source, count = build.input(rows(4)), build.input(shared(2, 4))
    one = build.call("aten.select.int", count, 0, 1)
    build.call("aten.mul_.Tensor", one, 2)
    return outputs(build.call("aten.add.Tensor", source, one))


def rows_counted(build: Builder) -> Made:
    source, places = build.input(rows(4)), build.input(whole_numbers(6, "batch"))
    bins = build.input(shared(6, 4))
    build.call("aten.index_put_.default", bins, (places,), source, True)
    return outputs(relu(build, source))


def bound_to_first_rows(build: Builder) -> Made:
    source = build.input(rows(4))
    numbers = build.call("aten.arange.default", BATCH)
    build.call("aten.add_.Scalar", numbers, 0)
    picked = build.call("aten.index.Tensor", source, (numbers,))
    return outputs(picked)


def numbers_through_a_view(build: Builder) -> Made:
    source = build.input(rows(4))
    numbers = build.call("aten.arange.default", BATCH)
    column = build.call("aten.unsqueeze.default", numbers, 1)
    build.call("aten.zero_.default", column)
    return outputs(build.call("aten.index.Tensor", source, (numbers,)))


def expanded_write(build: Builder) -> Made:
    source = build.input(rows(4))
    wide = build.call(
        "aten.expand.default", build.call("aten.zeros.default", (1, 4)), (BATCH, 4)
    )
    places = build.input(whole_numbers(4, 1))
    build.call("aten.index_fill_.int_Scalar", wide, 1, places, 2.0)
    return outputs(build.call("aten.add.Tensor", source, wide))


def first_row_also_read(build: Builder) -> Made:
    source = build.input(rows(4))
    first = build.call("aten.select.int", source, 0, 0)
    build.call("aten.add_.Tensor", source, 1)
    return outputs(build.call("aten.add.Tensor", source, first), outside=("op_0",))


def other_view_read(build: Builder) -> Made:
    source = build.input(rows(3))
    across = build.call("aten.view.default", source, (3, BATCH))
    build.call("aten.add_.Tensor", source, 1)
    return outputs(relu(build, across), outside=("op_0",))


def written_after_it_left(build: Builder) -> Made:
    source = build.input(rows(4))
    made = relu(build, source)
    mean = build.call("aten.mean.dim", made, (0,))
    build.call("aten.add_.Tensor", made, 1)
    again = build.call("aten.mean.dim", made, (0,))
    return outputs(mean, again, outside=("op_1", "op_3"))


def changed_outside(build: Builder) -> Made:
    source = build.input(rows(4))
    made = relu(build, source)
    build.call("aten.add_.Tensor", made, 1)
    return outputs(relu(build, made), outside=("op_1",))


def copy_that_may_be_a_view(build: Builder) -> Made:
    source = build.input(rows(3, 4))
    turned = build.call("aten.transpose.int", relu(build, source), 0, 1)
    copy = build.call("aten.contiguous.default", turned)
    build.call("aten.add_.Tensor", copy, 1)
    return outputs(relu(build, turned), relu(build, copy))


def input_that_may_be_copied(build: Builder) -> Made:
    source = build.input(rows(3, 4))
    turned = build.call("aten.transpose.int", source, 0, 1)
    copy = build.call("aten.contiguous.default", turned)
    build.call("aten.add_.Tensor", copy, 1)
    return outputs(relu(build, copy))


def gaps_that_are_copied(build: Builder) -> Made:
    source = build.input(Given((3, "batch", 4)))
    flat = build.call("aten.reshape.default", source, (Size(3, ("batch",)), 4))
    build.call("aten.add_.Tensor", flat, 1)
    back = build.call("aten.view.default", flat, (3, BATCH, 4))
    return outputs(relu(build, back))


def view_outside_written_inside(build: Builder) -> Made:
    made = relu(build, build.input(rows(4)))
    shown = build.call("aten.t.default", made)
    build.call("aten.add_.Tensor", shown, 1)
    return outputs(relu(build, made), outside=("op_1",))


def overlapping_views(build: Builder) -> Made:
    source = build.input(rows(3, 4))
    last = build.call("aten.slice.Tensor", source, 1, 2, 3)
    build.call("aten.copy_.default", source, last)
    return outputs(relu(build, source))


def gaps_made_contiguous(build: Builder) -> Made:
    source = build.input(Given((3, "batch", 4)))
    same = build.call("aten.contiguous.default", source)
    build.call("aten.add_.Tensor", same, 1)
    return outputs(relu(build, same))


def layout_outside(build: Builder) -> Made:
    source = build.input(rows(3, 4))
    turned = build.call("aten.transpose.int", source, 1, 2)
    made = relu(build, turned)
    flat = build.call("aten.reshape.default", made, (BATCH, 12))
    build.call("aten.add_.Tensor", flat, 1)
    return outputs(
        relu(build, made), relu(build, flat), outside=("op_2", "op_3", "op_4")
    )


@pytest.mark.parametrize(
    ("make", "reason", "leaks"),
    [
        (counter, "all microbatches share", True),
        (counter_through_a_view, "all microbatches share", True),
        (rows_counted, "all microbatches share", False),
        (bound_to_first_rows, "row numbers", False),
        (numbers_through_a_view, "row numbers", True),
        (expanded_write, "expanded", False),
        (first_row_also_read, "split otherwise", True),
        (other_view_read, "split otherwise", True),
        (written_after_it_left, "put together", True),
        (changed_outside, "changed in place outside", True),
        (copy_that_may_be_a_view, "depending on the number of rows", True),
        (input_that_may_be_copied, "depending on the number of rows", True),
        (gaps_that_are_copied, "merges the split dimension", True),
        (view_outside_written_inside, "put together", True),
        (overlapping_views, "reading another view", True),
        (gaps_made_contiguous, "copies a slice", True),
        (layout_outside, "depending on the number of rows", True),
    ],
)
def test_refused(make: Callable[[Builder], Made], reason: str, leaks: bool) -> None:
    build = Builder()
    references, outside = make(build)
    region = [name for name in build.names() if name not in outside]
    graph = build.graph(*references)
    check_graph(graph, region, build.tensors(), reason, leaks)


def transposed_and_written(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    turned = a.relu().transpose(0, 1)
    copy = turned.contiguous()
    copy.add_(1)
    return turned + 0, copy + 0


def transposed_written_last(a: torch.Tensor) -> torch.Tensor:
    turned = a.relu().transpose(0, 1).add_(1)
    return turned.contiguous() + 0


@pytest.mark.parametrize(
    "case",
    [
        refused(
            "one storage at one row, two at more",
            "depending on the number of rows",
            transposed_and_written,
            rows(3, 4),
        ),
        accepted("written before it is copied", transposed_written_last, rows(3, 4)),
    ],
    ids=str,
)
def test_copies_that_trace_marks(case: Case) -> None:
    check_case(case)
