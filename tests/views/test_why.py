"""What `dfsc why` says of steps: each wait, what needs it, and both places."""

from __future__ import annotations

from dynaflow_dsl.views.why import explain, labels, nearest, why_data, why_text
from tests.plan.layered import Layered, Read, Shape
from tests.prove.schedules import SCHEDULED_HALVES as HALVES
from tests.prove.schedules import Scheduled, order, scheduled


def why(schedule: Scheduled, label: str) -> str:
    return why_text(schedule.plan, explain(schedule.plan, label))


def test_a_wait_for_data_and_what_needs_none() -> None:
    first, later = why(HALVES, "attn[0]").split("\n\n")
    assert first.splitlines() == [
        "attn[0] on side, layer 0 · s.dfs:12:13",
        "  waits for what runs before the parts on main · s.dfs:11:9",
        "    reads hidden_0",
    ]
    assert later.splitlines() == [
        "attn[0] on side, layers 1 to 3 · s.dfs:12:13",
        "  waits for mlp[0] on main · s.dfs:13:13",
        "    reads hidden_0",
    ]


def test_a_step_without_index_is_all_of_its_pieces() -> None:
    steps = {run.step.label for run in explain(HALVES.plan, "mlp")}
    assert steps == {"mlp[0]", "prev.mlp[1]", "mlp[1]"}


def test_what_is_above_on_the_same_stream_needs_no_wait() -> None:
    text = why(HALVES, "mlp[0]")
    assert "  reads hidden_0 without a wait: mlp[0] is above it on main" in text


CACHED = Layered(
    (
        Shape("load", (Read("mix", carried=True),), cache="r"),
        Shape("store", (Read("mix", carried=True),), cache="w"),
        Shape("mix", (Read("load"), Read("store"))),
    ),
    layers=3,
    results=(("mix", 0),),
)


def test_a_wait_for_memory() -> None:
    windows = order("load", "store", "mix")
    schedule = scheduled(CACHED, {"load": "side"}, 1, windows, "side")
    text = why(schedule, "store")
    assert "  waits for load on side · s.dfs:12:13" in text
    assert "    writes keys.0, which load touches" in text


def test_a_wait_that_the_schedule_wants() -> None:
    model = Layered(
        (
            Shape("left", (Read("mix", carried=True),)),
            Shape("right", (Read("mix", carried=True),)),
            Shape("mix", (Read("left"), Read("right"))),
        ),
        layers=3,
        results=(("mix", 0),),
    )
    windows = order("left", "right after left", "mix")
    schedule = scheduled(model, {"left": "side"}, 1, windows, "side")
    text = why(schedule, "right")
    assert "  waits for left on side · s.dfs:12:13" in text
    assert "    comes after left, as the schedule says" in text


def test_a_step_that_there_is_not() -> None:
    assert explain(HALVES.plan, "atn[0]") == []
    assert "attn[0]" in nearest(HALVES.plan, "atn[0]")
    assert len(nearest(HALVES.plan, "quite another name")) <= 5
    assert set(labels(HALVES.plan)) >= {"before", "attn[0]", "attn[1]", "mlp[0]"}


def test_the_same_as_data() -> None:
    first = why_data(explain(HALVES.plan, "attn[0]"))[0]
    assert first["stream"] == "side"
    assert first["waits"] == [
        {
            "event": "before_done",
            "step": "before",
            "stream": "main",
            "place": "s.dfs:11:9",
            "reasons": ["reads hidden_0"],
        }
    ]
