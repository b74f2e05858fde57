"""Plans at the edges: one layer, one stream, results of other streams, first passes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeVar

from dynaflow_dsl.plan.model import (
    Allocate,
    Free,
    Hold,
    Join,
    Loop,
    Merge,
    Plan,
    Record,
    Return,
    Slices,
    Statement,
    Variable,
    Wait,
)
from dynaflow_dsl.prove import prove
from tests.plan.layered import Layered, Read, Shape
from tests.prove.schedules import (
    BARE,
    SUMS,
    TWO,
    Scheduled,
    order,
    scheduled,
    stagger,
)
from tests.simulator.text import judge

S = TypeVar("S", bound=Statement)


def all_of(plan: Plan, kind: type[S], *, loops: bool | None = None) -> Iterator[S]:
    """All statements of a kind, or those in loops, or those outside of them."""
    for segment in plan.step.segments:
        if loops is not None and loops != isinstance(segment, Loop):
            continue
        for block in segment.blocks:
            yield from (s for s in block.statements if isinstance(s, kind))


def is_right(schedule: Scheduled) -> bool:
    prove(schedule.plan).unwrap()
    return judge(schedule.text(), persistent=("keys",), exhaustive=5_000) == []


def layers(model: Layered, count: int) -> Layered:
    return Layered(model.shapes, count, model.results, model.head, model.embed)


def test_a_single_stream_needs_no_waits_and_no_join() -> None:
    schedule = scheduled(TWO, {}, 2, stagger("attn", "mlp"))
    assert is_right(schedule)
    for kind in (Wait, Record, Join, Hold):
        assert list(all_of(schedule.plan, kind)) == []


def test_one_layer_has_no_loop_after_a_stagger() -> None:
    on: dict[str, str | list[str]] = {"attn": "side"}
    schedule = scheduled(layers(TWO, 1), on, 2, stagger("attn", "mlp"), "side")
    assert not any(isinstance(s, Loop) for s in schedule.plan.step.segments)
    assert is_right(schedule)


def test_one_layer_in_order() -> None:
    on: dict[str, str | list[str]] = {"mlp": "side"}
    assert is_right(scheduled(layers(TWO, 1), on, 1, order("attn", "mlp"), "side"))
    assert is_right(scheduled(layers(BARE, 1), on, 1, order("attn", "mlp"), "side"))


def test_a_result_of_another_stream_is_copied_on_main() -> None:
    schedule = scheduled(SUMS, {"mlp": "side"}, 1, order("attn", "mlp"), "side")
    (copy,) = all_of(schedule.plan, Merge)
    (returned,) = all_of(schedule.plan, Return)
    assert copy.pieces == ("hidden",)
    assert returned.operands == (Variable(copy.target),)
    assert f"{copy.target} = hidden.clone()" in schedule.text()
    assert is_right(schedule)


def test_a_result_of_another_stream_is_written_where_main_has_made_it() -> None:
    schedule = scheduled(BARE, {"mlp": "side"}, 1, order("attn", "mlp"), "side")
    (made,) = all_of(schedule.plan, Allocate)
    (returned,) = all_of(schedule.plan, Return)
    assert made.stream == "main"
    assert returned.operands == (Variable(made.target),)
    assert list(all_of(schedule.plan, Merge)) == []
    assert f"self.mlp_into(3, hidden, attn, {made.target})" in schedule.text()
    assert is_right(schedule)


def test_pieces_of_several_streams_are_joined_for_a_step_that_takes_all() -> None:
    # What runs after the layers reads them as well.
    model = Layered(
        (Shape("a", (Read("b", carried=True),)), Shape("b", (Read("a"),))),
        layers=3,
        results=(("a", 0),),
        head=(("b", 0),),
    )
    on: dict[str, str | list[str]] = {"a": ["main", "side"]}
    apart = scheduled(model, on, 2, order("a[0] | a[1]", "b[*]"), "side")
    assert [m.target for m in all_of(apart.plan, Merge, loops=True)] == ["a_whole"]
    assert list(all_of(apart.plan, Allocate)) == []
    assert is_right(apart)
    beside = scheduled(model, {"a": "side"}, 2, order("a[0], a[1]", "b[*]"), "side")
    # The last ones are returned, and so made on main.
    assert [made.stream for made in all_of(beside.plan, Allocate)] == ["side"]
    assert is_right(beside)


def test_a_whole_that_a_step_takes_is_what_runs_after_it_reads() -> None:
    model = Layered(
        (Shape("a", (Read("b", carried=True),)), Shape("b", (Read("a"),))),
        layers=3,
        results=(),
        head=(("a", 0), ("b", 0)),
    )
    schedule = scheduled(model, {"a": "side"}, 2, order("a[0], a[1]", "b[*]"), "side")
    assert list(all_of(schedule.plan, Merge)) == []
    (made,) = {one.target for one in all_of(schedule.plan, Allocate)}
    assert f"self.after(0, {made}, hidden)" in schedule.text()
    assert is_right(schedule)


def test_a_result_of_main_is_not_copied() -> None:
    schedule = scheduled(BARE, {"attn": "side"}, 1, order("attn", "mlp"), "side")
    assert list(all_of(schedule.plan, Merge)) == []
    assert is_right(schedule)


def test_the_first_pass_waits_for_the_start_in_place_of_a_layer_before() -> None:
    schedule = scheduled(TWO, {"mlp": "side"}, 1, order("attn", "mlp"), "side")
    (wait,) = (w for w in all_of(schedule.plan, Wait, loops=True) if w.label == "attn")
    assert wait == Wait("main", "mlp_done", "attn", ("hidden",))
    records = [record.event for record in all_of(schedule.plan, Record, loops=False)]
    assert "mlp_done" in records
    assert is_right(schedule)


def test_a_stream_that_begins_in_the_loop_is_forked_before_it() -> None:
    # store reads nothing that is made: only the fork keeps it behind the caller.
    model = Layered(
        (
            Shape("store", (Read(None),), cache="w"),
            Shape("attn", (Read("attn", carried=True),)),
        ),
        layers=3,
        results=(("store", 0),),
        head=(("attn", 0),),
    )
    schedule = scheduled(model, {"store": "side"}, 1, order("store | attn"), "side")
    forks = [w for w in all_of(schedule.plan, Wait, loops=False) if w.stream == "side"]
    assert [fork.event for fork in forks] == ["before_done"]
    assert not any(
        w.event == "before_done" for w in all_of(schedule.plan, Wait, loops=True)
    )
    assert is_right(schedule)


def test_what_is_returned_is_never_freed() -> None:
    model = Layered(
        (Shape("a", (Read("a", carried=True),)), Shape("b", (Read("a"),))),
        layers=3,
        results=(("b", 0), ("a", 0)),
    )
    schedule = scheduled(model, {}, 1, order("a", "b"))
    (returned,) = all_of(schedule.plan, Return)
    names = {item.name for item in returned.operands if isinstance(item, Variable)}
    freed = {name for free in all_of(schedule.plan, Free) for name in free.variables}
    assert len(names) == 2
    assert not names & freed
    assert is_right(schedule)


def test_what_layers_start_from_keeps_its_own_name_when_it_is_read_again() -> None:
    model = Layered(TWO.shapes, 3, (), TWO.head, shortcut=True)
    for pieces, timeline in ((1, order("attn", "mlp")), (2, stagger("attn", "mlp"))):
        schedule = scheduled(model, {"attn": "side"}, pieces, timeline, "side")
        assert any(
            s.targets[0].startswith("hidden") for s in all_of(schedule.plan, Slices)
        )
        assert is_right(schedule)


def test_an_input_that_layers_start_from_is_cut_once() -> None:
    schedule = scheduled(BARE, {"mlp": "side"}, 2, stagger("attn", "mlp"), "side")
    (slices,) = all_of(schedule.plan, Slices)
    assert slices.targets == ("hidden_0", "hidden_1")


def test_two_results_of_a_step_have_ends_of_their_own() -> None:
    # One is dropped in the loop, the other is read too late for that.
    model = Layered(
        (
            Shape("a", (Read("b", carried=True),)),
            Shape("b", (Read(None),), outputs=2),
        ),
        layers=4,
        results=(("b", 1), ("b", 0)),
        embed=False,
    )
    schedule = scheduled(model, {"b": "left"}, 2, stagger("a", "b"), "left")
    assert any("hidden_1" in hold.variables for hold in all_of(schedule.plan, Hold))
    assert is_right(schedule)


def test_what_was_made_before_the_loop_may_be_held_once() -> None:
    schedule = scheduled(TWO, {"mlp": "side"}, 1, order("attn", "mlp"), "side")
    (hold,) = all_of(schedule.plan, Hold, loops=False)
    assert hold.variables == ("hidden",)
    # It does not grow with the layers, so nobody is told.
    assert {d.code for d in prove(schedule.plan).diagnostics} == {"DFS320"}


def test_a_single_layer_reads_what_it_is_given_whatever_is_issued_first() -> None:
    model = Layered(
        (Shape("a", (Read("b", carried=True),)), Shape("b", (Read(None),))),
        layers=1,
        results=(("a", 0), ("b", 0)),
    )
    assert is_right(scheduled(model, {}, 1, order("b", "a")))


def test_late_layers_that_share_a_cache() -> None:
    # Only layers 9 and 10 touch one memory, where a short run of the loop sees nothing.
    carried = Read("attn", carried=True)
    model = Layered(
        (
            Shape("attn", (carried,), cache="r"),
            Shape("store", (Read("attn"),), cache="w"),
        ),
        layers=12,
        results=(("store", 0),),
        head=(("attn", 0),),
        cache_of=(*range(10), 9, 11),
    )
    schedule = scheduled(model, {"store": "side"}, 1, order("attn", "store"), "side")
    assert any(w.label == "attn" for w in all_of(schedule.plan, Wait, loops=True))
    assert is_right(schedule)


def test_a_loop_of_a_single_window() -> None:
    # Fetch this layer while the layer before computes.
    model = Layered(
        (
            Shape("fetch", (Read(None),)),
            Shape("body", (Read("body", carried=True), Read("fetch"))),
        ),
        layers=4,
        results=(),
        head=(("body", 0),),
    )
    on: dict[str, str | list[str]] = {"fetch": "copy"}
    schedule = scheduled(model, on, 1, order("fetch | prev.body"), "copy")
    # One pair in each pass of the loop; the first fetch and the last body are alone.
    assert prove(schedule.plan).unwrap().overlaps == 3
    assert is_right(schedule)


def test_passes_of_a_single_window_claim_nothing_about_each_other() -> None:
    carried = Read("b", carried=True)
    model = Layered(
        (Shape("a", (carried,)), Shape("b", (carried,))),
        layers=4,
        results=(("a", 0), ("b", 0)),
    )
    schedule = scheduled(model, {"b": "side"}, 1, order("a | b"), "side")
    assert prove(schedule.plan).unwrap().overlaps == 4
    assert is_right(schedule)


def test_many_streams_pieces_parts_and_layers() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    shapes = [Shape("a", (Read("f", carried=True),))]
    shapes += [Shape(name, (Read(before),)) for before, name in pairwise(names)]
    model = Layered(tuple(shapes), 64, (), (("f", 0),))
    on: dict[str, str | list[str]] = {"b": "s", "c": "t", "d": "u", "e": "s"}
    schedule = scheduled(model, on, 4, stagger(*names), "s", "t", "u")
    assert prove(schedule.plan).ok
    # The first pass, the loop, the last pass and what is left after it.
    assert len(list(all_of(schedule.plan, Wait))) < 80
