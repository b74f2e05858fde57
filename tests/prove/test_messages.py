"""What `prove` says when a plan is wrong."""

from __future__ import annotations

from dataclasses import replace

from dynaflow_dsl.diagnostics import Diagnostic, Severity
from dynaflow_dsl.plan.model import (
    Join,
    Loop,
    Plan,
    Program,
    Return,
    Statement,
    Wait,
)
from dynaflow_dsl.prove import prove
from tests.plan.layered import Layered, Read, Shape
from tests.prove.program_mutations import Spot, moves, removals, with_block
from tests.prove.schedules import SCHEDULED_HALVES as HALVES
from tests.prove.schedules import fetching, order, scheduled


def refusals(kind: str, what: str) -> list[tuple[Diagnostic, ...]]:
    plans = (m for m in (*removals(HALVES.plan), *moves(HALVES.plan)))
    return [
        prove(m.plan).diagnostics for m in plans if m.kind == kind and what in m.what
    ]


def spans(diagnostic: Diagnostic) -> list[str]:
    assert diagnostic.primary is not None
    labels = (diagnostic.primary, *diagnostic.secondary)
    return [label.span.text for label in labels]


def test_a_read_without_its_wait() -> None:
    (found,) = refusals("Wait removed", "loop: main waits for attn_0_done")
    assert found[0].code == "DFS701"
    assert found[0].message == "mlp[0] reads attn_0 without waiting for attn[0]"
    assert spans(found[0]) == ["mlp", "attn"]
    assert found[0].secondary[0].text == "the other step"


def test_memory_given_back_too_early() -> None:
    (found,) = refusals("Free earlier", "loop: attn_0")
    assert [d.code for d in found] == ["DFS702"]
    assert found[0].message == (
        "attn_0, made by attn[0] on side, is freed before side has waited for mlp[0] "
        "on main"
    )
    assert spans(found[0]) == ["mlp", "attn"]


def test_a_step_that_ends_before_its_streams() -> None:
    (found,) = refusals("Join removed", "last")
    # What side made is dropped when the step returns, and main may still read it.
    assert {d.code for d in found} == {"DFS702"}
    assert all("is freed before side has waited for" in d.message for d in found)


def last_of(plan: Plan) -> tuple[Spot, tuple[Statement, ...]]:
    """The block that runs after the parts."""
    (block,) = plan.step.segments[-1].blocks
    return (len(plan.step.segments) - 1, 0), block.statements


def test_work_that_main_never_waits_for() -> None:
    plan = HALVES.plan
    spot, statements = last_of(plan)
    kept = tuple(s for s in statements if not isinstance(s, Join))
    changed = with_block(plan, spot, kept)
    # Without the last mlp, main waits for no attention of the last layer.
    *segments, _, after = changed.step.segments
    changed = replace(changed, step=Program((*segments, after)))
    codes = {d.message for d in prove(changed).diagnostics}
    assert "the step ends before main has waited for side" in codes


def test_nothing_behind_the_return_counts() -> None:
    plan = HALVES.plan
    spot, statements = last_of(plan)
    join = next(s for s in statements if isinstance(s, Join))
    rest = tuple(s for s in statements if not isinstance(s, Join))
    for changed in ((*rest, join), rest):
        assert prove(with_block(plan, spot, changed)).value is None
    without = tuple(s for s in statements if not isinstance(s, Return))
    found = prove(with_block(plan, spot, without)).diagnostics
    assert [(d.code, d.message) for d in found] == [("DFS707", "nothing is returned")]


def test_a_wait_for_nothing() -> None:
    plan = HALVES.plan
    wait = Wait("side", "mlp_0_done", "attn[0]", ())
    statements = plan.step.segments[0].blocks[0].statements
    (found,) = prove(with_block(plan, (0, 0), (*statements, wait))).diagnostics
    assert (found.code, found.message) == (
        "DFS707",
        "side waits for mlp_0_done, never recorded",
    )


def test_a_wait_that_breaks_a_window() -> None:
    # Safe, but the two steps of the window can no longer overlap.
    plan = HALVES.plan
    loop = next(n for n, s in enumerate(plan.step.segments) if isinstance(s, Loop))
    block = plan.step.segments[loop].blocks[0]
    calls = [s for s in block.statements if getattr(s, "label", "") == "prev.mlp[1]"]
    at = block.statements.index(calls[0])
    wait = Wait("main", "attn_0_done", "prev.mlp[1]", ())
    statements = (*block.statements[:at], wait, *block.statements[at:])
    (found,) = prove(with_block(plan, (loop, 0), statements)).diagnostics
    assert found.code == "DFS302"
    assert (
        found.message == "attn[0] and prev.mlp[1] cannot overlap: something orders them"
    )
    assert spans(found) == ["attn", "mlp"]
    assert found.secondary[0].text == "claimed to run at the same time"


def test_memory_that_lives_to_the_join_in_every_layer() -> None:
    carried = Read("mlp", carried=True)
    model = Layered(
        (
            Shape("attn", (carried,)),
            Shape("store", (Read("attn"),), cache="w"),
            Shape("mlp", (carried, Read("attn"))),
        ),
        layers=3,
        results=(("store", 0),),
        head=(("mlp", 0),),
    )
    schedule = scheduled(
        model, {"store": "side"}, 1, order("attn", "store | mlp"), "side"
    )
    proved = prove(schedule.plan)
    (found,) = proved.diagnostics
    assert proved.unwrap().held == ("attn",)
    assert (found.code, found.severity) == ("DFS703", Severity.INFO)
    assert found.message == "attn is kept in every layer until the end of the step"
    assert found.primary is not None
    assert found.primary.span.text.startswith("order")
    assert found.primary.text == "no stream waits for its last reader"
    assert found.helps


WRONG_LAYER = (
    "prev.body reads the weights of layer 0 in buffer 0 of fetch, which holds those of "
    "layer 1"
)


def test_weights_that_are_overwritten_or_not_there_yet() -> None:
    plan = fetching()["weights a layer ahead"].plan
    found = {
        m.what: prove(m.plan).diagnostics[0]
        for m in removals(plan)
        if m.kind == "Wait removed"
    }
    early = found["loop: main waits for fetch_done before prev.body"]
    late = found["loop: copy waits for body_done before fetch"]
    assert [one.code for one in (early, late)] == ["DFS701", "DFS701"]
    assert early.message == (
        "prev.body and fetch touch buffer 0 of fetch at once, and one of them writes it"
    )
    assert spans(early) == ["prev.body", "fetch"]
    assert late.message == (
        "fetch and prev.body touch buffer 0 of fetch at once, and one of them writes it"
    )
    # One more does no harm, with one less the next layer's weights are there too early.
    assert prove(replace(plan, buffers={"fetch": 3})).ok
    found_there = prove(replace(plan, buffers={"fetch": 1})).diagnostics
    assert ("DFS707", WRONG_LAYER) in [(one.code, one.message) for one in found_there]
    (wrong, *_) = prove(replace(plan, buffers={})).diagnostics
    assert (wrong.code, wrong.message) == (
        "DFS707",
        "fetch brings weights to no buffer",
    )
