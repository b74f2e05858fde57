"""Memory that pieces share, in which each row has places of its own."""

from dataclasses import replace

import pytest
import torch

from dynaflow_dsl.graph.model import Graph, Reference
from dynaflow_dsl.graph.rowwise import RowCheck, Rows, Shared, check_rows
from tests.graph.rowwise.building import Builder
from tests.graph.rowwise.interpreter import difference
from tests.graph.rowwise.tracing import Given, rows, shared, whole_numbers

SHARED = "writes rows into a tensor that all microbatches share"
ALL = "reads all of a tensor into which each row writes places of its own"
SLOTS = whole_numbers(8, "batch")


class Cache(Builder):
    """The first input has 8 places of 4 numbers, and each row a slot in it."""

    def __init__(self, slots: Given = SLOTS) -> None:
        super().__init__()
        self.cache = self.input(shared(8, 4))
        self.slots = self.input(slots)
        self.new = self.input(rows(4))

    def store(self) -> None:
        self.call("aten.index_put_.default", self.cache, (self.slots,), self.new)

    def load(self) -> Reference:
        found: Reference = self.call("aten.index.Tensor", self.cache, (self.slots,))
        return found

    def checked(self, *outputs: Reference, disjoint: bool = True) -> RowCheck:
        graph = self.graph(*outputs)
        if disjoint:
            graph = marked(graph)
        return check_rows(graph, "batch", self.names())

    def reasons(self, *outputs: Reference) -> list[str]:
        return [refusal.reason for refusal in self.checked(*outputs).refusals]


def marked(graph: Graph) -> Graph:
    first, *others = graph.inputs
    return replace(graph, inputs=(replace(first, disjoint=True), *others))


def own_slots(build: Cache) -> dict[str, torch.Tensor]:
    return {**build.tensors(), build.slots.name: torch.tensor([6, 1, 3, 0, 4])}


def test_rows_write_and_read_places_of_their_own() -> None:
    build = Cache()
    build.store()
    result = build.load()
    check = build.checked(result)
    assert check.refusals == ()
    assert check.disjoint == ("op_0",)
    assert check.facts[result.name] == Rows(0)
    assert check.facts[build.cache.name] == Shared()
    graph = build.graph(result)
    assert difference(graph, build.names(), own_slots(build)) is None
    # If two rows share a place, the last one wins, and pieces have another last one.
    same = {**build.tensors(), build.slots.name: torch.tensor([6, 1, 6, 0, 6])}
    assert difference(graph, build.names(), same) is not None
    refusals = build.checked(result, disjoint=False).refusals
    assert [refusal.reason for refusal in refusals] == [SHARED]


def test_rows_of_two_microbatches_may_meet() -> None:
    """What the target says may be about other microbatches, of other rows."""
    build = Cache()
    build.store()
    graph = marked(build.graph(build.load()))
    check = check_rows(graph, "batch", build.names(), disjoint=False)
    assert [refusal.reason for refusal in check.refusals] == [SHARED]
    assert check.disjoint == ()


def test_whole_places_are_copied() -> None:
    build = Cache()
    build.call("aten.index_copy_.default", build.cache, 0, build.slots, build.new)
    check = build.checked(build.new)
    assert (check.refusals, check.disjoint) == ((), ("op_0",))
    graph = build.graph(build.new)
    assert difference(graph, build.names(), own_slots(build)) is None


def test_pages_of_a_table() -> None:
    build = Cache(whole_numbers(8, "batch", 3))
    build.new = build.input(rows(3, 4))
    build.store()
    result = build.load()
    assert build.checked(result).facts[result.name] == Rows(0)


def test_places_by_a_view() -> None:
    build = Cache()
    flat = build.call("aten.view.default", build.cache, (4, 2, 4))
    half = build.call("aten.select.int", flat, 1, 0)
    small = build.call("aten.remainder.Scalar", build.slots, 4)
    build.call("aten.index_put_.default", half, (small,), build.new)
    assert build.reasons(build.new) == []


def test_places_are_read_by_a_view() -> None:
    build = Cache()
    build.store()
    turned = build.call("aten.unsqueeze.default", build.cache, 1)
    result = build.call("aten.index_select.default", turned, 0, build.slots)
    assert build.checked(result).facts[result.name] == Rows(0)
    graph = build.graph(result)
    assert difference(graph, build.names(), own_slots(build)) is None


def test_a_copy_is_no_memory_that_pieces_share() -> None:
    """Each microbatch has a copy of its own, without the rows of others."""
    build = Cache()
    copy = build.call("aten.index_put.default", build.cache, (build.slots,), build.new)
    result = build.call("aten.index.Tensor", copy, (build.slots,))
    assert build.reasons(result) == [SHARED]


@pytest.mark.parametrize("before", [True, False])
def test_nobody_reads_all_places(before: bool) -> None:
    build = Cache()
    if not before:
        build.store()
    total = build.call("aten.sum.dim_IntList", build.cache, (0,))
    if before:
        build.store()
    result = build.call("aten.add.Tensor", build.new, total)
    assert build.reasons(result) == [ALL]
    assert difference(build.graph(result), build.names(), own_slots(build)) is not None


def test_what_nobody_writes_is_read_by_all() -> None:
    build = Cache()
    total = build.call("aten.sum.dim_IntList", build.cache, (0,))
    result = build.call("aten.add.Tensor", build.new, total)
    assert build.reasons(result) == []


def test_the_same_places_for_all_rows() -> None:
    build = Cache(whole_numbers(8, 2))
    value = build.input(shared(2, 4))
    build.call("aten.index_put_.default", build.cache, (build.slots,), value)
    assert build.reasons(build.new) == [ALL]
    build = Cache()
    build.store()
    fixed = build.input(whole_numbers(8, 2))
    place = build.call("aten.index.Tensor", build.cache, (fixed,))
    total = build.call("aten.sum.default", place)
    result = build.call("aten.add.Tensor", build.new, total)
    assert build.reasons(result) == [ALL]


def test_all_places_are_written() -> None:
    build = Cache()
    build.call("aten.mul_.Scalar", build.cache, 2.0)
    assert build.reasons(build.new) == [ALL]


def test_the_same_numbers_at_places_of_rows() -> None:
    build = Cache()
    one = build.input(shared(4))
    build.call("aten.index_put_.default", build.cache, (build.slots,), one)
    assert build.reasons(build.new) == []
