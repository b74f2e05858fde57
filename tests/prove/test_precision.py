"""Right schedules that a nervous proof would refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dynaflow_dsl.diagnostics import Severity
from dynaflow_dsl.prove import prove
from tests.bind.graphs import repeat
from tests.plan.layered import Layered, Read, Shape
from tests.prove.schedules import (
    CARRIED,
    THREE,
    TWO,
    Scheduled,
    order,
    scheduled,
    stagger,
    written,
)
from tests.simulator.verdict import judge_plan

STATE = Layered(
    (
        Shape("attn", (CARRIED,), cache="W"),
        Shape("mlp", (CARRIED, Read("attn")), cache="R"),
    ),
    layers=3,
    results=(),
    head=(("mlp", 0),),
)
WIDE = Layered(
    (
        Shape("left", (Read("join", carried=True),)),
        Shape("right", (Read("join", carried=True),)),
        Shape("join", (Read("left"), Read("right"))),
    ),
    layers=3,
    results=(),
    head=(("join", 0),),
)
CHAIN = Layered(
    (
        Shape("a", (Read("c", carried=True),)),
        Shape("b", (Read("a"),)),
        Shape("c", (Read("a"), Read("b"))),
    ),
    layers=3,
    results=(),
    head=(("c", 0),),
)
KEPT = Layered(
    (
        Shape("attn", (CARRIED,)),
        Shape("store", (Read("attn"),), cache="w"),
        Shape("mlp", (CARRIED, Read("attn"))),
    ),
    layers=3,
    results=(("store", 0),),
    head=(("mlp", 0),),
)
CROSSED = Layered(TWO.shapes, 3, (), (("mlp", 0),), cache_of=(0, 1, 0))

REDUCED = """
    a%i = relu(h%i) @ layers.%i.attn
    u%i = _c10d_functional.all_reduce.default(a%i, sum, tp) @ layers.%i.attn
    v%i = _c10d_functional.wait_tensor.default(u%i) @ layers.%i.attn
    h%n = relu(v%i) @ layers.%i.mlp
"""
REDUCTION = """    stream side
    split batch into 2 as mb
    each layer in .layers.*:
        part attn on side = .attn
        part mlp = rest
        stagger mb by 1:
            attn
            mlp
"""
IN_TURNS = """
    input h0
    a = relu(h0) @ first
    b = _c10d_functional.all_reduce.default(a, sum, tp) @ first
    c = _c10d_functional.wait_tensor.default(b) @ first
    d = relu(c) @ second
    e = _c10d_functional.all_reduce.default(d, sum, tp) @ second
    f = _c10d_functional.wait_tensor.default(e) @ second
    return f
"""
TURNS = """    stream side
    part first on side = .first
    part second = .second
    order:
        first
        second
"""

# What is right about each, and how it is made.
CASES: dict[str, Callable[[], Scheduled]] = {
    "two streams read one value at once": lambda: scheduled(
        WIDE, {"left": "side"}, 1, order("left | right", "join"), "side"
    ),
    "two streams write rows of their own of one cache": lambda: scheduled(
        TWO,
        {"attn": ["main", "side"], "mlp": ["main", "side"]},
        2,
        order("attn[0] | attn[1]", "mlp[0] | mlp[1]"),
        "side",
    ),
    "caches of two layers are written at once": lambda: scheduled(
        TWO, {"attn": "side"}, 2, stagger("attn", "mlp"), "side"
    ),
    "layers that share a cache take turns by their data": lambda: scheduled(
        CROSSED, {"attn": "side"}, 2, stagger("attn", "mlp"), "side"
    ),
    "all layers write one state, in the order of their data": lambda: scheduled(
        STATE, {"mlp": "side"}, 1, order("attn", "mlp"), "side"
    ),
    "a step is ordered only by a chain over a third stream": lambda: scheduled(
        CHAIN, {"b": "left", "c": "right"}, 1, order("a", "b", "c"), "left", "right"
    ),
    "memory goes back once its stream knows a reader by way of another": lambda: (
        scheduled(
            THREE,
            {"attn": "left", "gate": "right"},
            2,
            order(
                "attn[0] | prev.gate[1]",
                "prev.down[1]",
                "gate[0] | attn[1]",
                "down[0]",
            ),
            "left",
            "right",
        )
    ),
    "a name goes to a new tensor while its own stream still reads the old": lambda: (
        scheduled(TWO, {}, 1, order("attn", "mlp"))
    ),
    "pieces outlive the name of the whole": lambda: scheduled(
        TWO, {"mlp": "side"}, 2, stagger("attn", "mlp"), "side"
    ),
    "what no stream waits for is kept until the join": lambda: scheduled(
        KEPT, {"store": "side"}, 1, order("attn", "store | mlp"), "side"
    ),
    "a result is made on a side stream and copied to main": lambda: scheduled(
        Layered(TWO.shapes, 3, (("mlp", 0),)),
        {"mlp": "side"},
        1,
        order("attn", "mlp"),
        "side",
    ),
    "uneven pieces on three streams": lambda: scheduled(
        TWO,
        {"attn": ["main", "left", "right"], "mlp": ["main", "left", "right"]},
        "[3, 2, 1]",
        order("attn[0] | attn[1] | attn[2]", "mlp[0] | mlp[1] | mlp[2]"),
        "left",
        "right",
    ),
    "a process group that one stream uses": lambda: written(
        f"input h0\n{repeat(REDUCED, 3)}\nreturn h3", REDUCTION
    ),
    "a process group that two streams use in turns": lambda: written(IN_TURNS, TURNS),
}


@pytest.mark.parametrize("name", CASES)
def test_a_right_schedule_is_proved(name: str) -> None:
    schedule = CASES[name]()
    assert judge_plan(schedule.plan).faults == ()
    found = prove(schedule.plan).diagnostics
    assert [d for d in found if d.severity is Severity.ERROR] == []
