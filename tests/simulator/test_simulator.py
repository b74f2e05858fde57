"""The simulator itself: what it is made of, and that it calls faults what they are."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.simulator import planted
from tests.simulator.drafts import Draft
from tests.simulator.orders import Orders
from tests.simulator.planted import Plant
from tests.simulator.queues import Item, Kernel, Recording
from tests.simulator.random_plans import random_plan, sequential
from tests.simulator.verdict import judge_plan

# Data that stages hand on. What makes plans, and what proves them, is not among it.
MODELS = {
    "dynaflow_dsl.bind.model",
    "dynaflow_dsl.graph.model",
    "dynaflow_dsl.plan.model",
    "dynaflow_dsl.resolve.model",
    "dynaflow_dsl.source",
}

# What may come of a change, and what has to come of it now and then, alone.
MEANT: dict[Plant, tuple[str, set[str]]] = {
    planted.drop_wait: ("race", {"freed", "overwritten", "shared", "unforked"}),
    # A tensor that main makes before the layers may not be there yet.
    planted.drop_fork: ("unforked", {"overwritten"}),
    planted.drop_wait_for_memory: (
        "overwritten",
        {"race", "unforked", "shared", "freed"},
    ),
    planted.drop_wait_for_group: (
        "shared",
        {"race", "unforked", "overwritten", "freed"},
    ),
    planted.free_early: ("freed", set()),
    planted.drop_hold: ("freed", set()),
    planted.drop_join: ("unjoined", {"freed"}),
    planted.leave_work: ("unjoined", {"unbound", "shared", "order", "value"}),
    planted.return_from_side: ("output", set()),
    planted.swap_pieces: ("value", set()),
    planted.misplace: (
        "value",
        {"unbound", "overwritten", "freed", "race", "output"},
    ),
    planted.drop_step: ("missing", set()),
    planted.claim_falsely: ("overlap", set()),
    planted.say_falsely: ("after", set()),
}


def test_it_shares_nothing_with_the_rooms_that_plan_and_prove() -> None:
    files = [
        path
        for path in Path(__file__).parent.glob("*.py")
        if not path.name.startswith("test_")
    ]
    assert len(files) > 10
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            ours = {name for name in names if name.startswith("dynaflow_dsl")}
            assert ours <= MODELS, path.name
            tests = {name for name in names if name.startswith("tests.")}
            assert all(name.startswith("tests.simulator.") for name in tests)


@pytest.fixture(scope="module")
def drafts() -> list[Draft]:
    return [random_plan(Random(seed)) for seed in range(400)]


@pytest.mark.parametrize("plant", MEANT, ids=lambda plant: plant.__name__)
def test_a_planted_fault_shows_as_what_it_is(plant: Plant, drafts: list[Draft]) -> None:
    kind, besides = MEANT[plant]
    seen: Counter[str] = Counter()
    alone = 0
    for seed, draft in enumerate(drafts):
        broken = plant(draft, Random(seed))
        if broken is None:
            continue
        program = sequential(draft.drawing, draft.binding)
        kinds = judge_plan(broken.plan(program)).kinds
        seen.update(kinds)
        alone += kinds == {kind}
    assert alone > 0
    # What is claimed of a plan fails with whatever else is wrong.
    assert set(seen) <= {kind, "after", "overlap"} | besides


def recording(*given: tuple[str, str, object]) -> Recording:
    items = [
        Item(number, stream, work, kind)  # type: ignore[arg-type]
        for number, (stream, kind, work) in enumerate(given)
    ]
    return Recording(("main", "side"), items)


def kernel(label: str, reads: str = "", writes: str = "", role: str = "step") -> Kernel:
    cells = tuple(((cell, None), (label,), ()) for cell in writes)
    return Kernel(label, tuple((cell, None) for cell in reads), cells, role)  # type: ignore[arg-type]


def kinds(*given: tuple[str, str, object]) -> set[str]:
    orders = Orders(recording(*given))
    explored = orders.all(1_000)
    assert explored is not None
    assert bool(explored.faults) == bool(orders.starving())
    return {fault.kind for fault in explored.faults}


def test_every_way_in_which_two_kernels_can_meet() -> None:
    make, read = kernel("make", writes="a"), kernel("read", reads="a")
    again = kernel("again", writes="a")
    reuse = kernel("reuse", writes="a", role="reuse")
    end = kernel("end", reads="a", role="end")
    on_main, on_side = ("main", "run", make), ("side", "run", read)
    assert kinds(on_main, on_side) == {"race"}
    assert kinds(on_main, ("main", "run", read)) == set()
    waited = (("main", "record", 7), ("side", "wait", 7))
    assert kinds(on_main, *waited, on_side) == set()
    # An event recorded before the kernel knows nothing of it.
    assert kinds(("main", "record", 7), on_main, ("side", "wait", 7), on_side) == {
        "race"
    }
    assert kinds(on_main, *waited, on_side, ("main", "run", again)) == {"overwritten"}
    assert kinds(on_main, ("side", "run", again)) == {"overwritten"}
    assert kinds(on_main, *waited, on_side, ("main", "run", reuse)) == {"freed"}
    assert kinds(on_main, *waited, on_side, ("main", "run", end)) == {"unjoined"}
    assert kinds(("side", "run", make), ("main", "run", end)) == {"unjoined"}


def test_steps_may_overlap_when_both_can_be_next() -> None:
    one, other = kernel("one"), kernel("other")
    free = Orders(recording(("main", "run", one), ("side", "run", other))).all(10)
    assert free is not None
    assert free.together == {frozenset({0, 1})}
    waits = (("main", "record", 7), ("side", "wait", 7))
    bound = Orders(recording(("main", "run", one), *waits, ("side", "run", other))).all(
        10
    )
    assert bound is not None
    assert bound.together == set()


def test_nothing_is_said_above_the_limit() -> None:
    work = [(stream, "run", kernel("k")) for stream in ("main", "side") * 3]
    assert Orders(recording(*work)).all(3) is None
