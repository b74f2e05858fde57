"""The judge itself: what it must find in broken text, and that its two ways agree."""

from __future__ import annotations

import pytest

from tests.prove.program_mutations import removals
from tests.prove.schedules import (
    TWO,
    Scheduled,
    order,
    scheduled,
    schedules,
    stagger,
)
from tests.prove.text_mutations import (
    base_dropped,
    earlier_frees,
    swapped_slices,
    without,
)
from tests.simulator.orders import Orders
from tests.simulator.recording import ModuleText
from tests.simulator.text import judge

SCHEDULES = schedules()
SPLIT = [name for name in SCHEDULES if "no split" not in name]


def found(text: str) -> list[str]:
    return judge(text, persistent=("keys",))


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_wait_can_go(name: str) -> None:
    texts = without(SCHEDULES[name].text(), ".wait(")
    assert len(texts) >= 2
    assert [line for line, text in texts.items() if not found(text)] == []


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_join_cannot_go(name: str) -> None:
    (text,) = without(SCHEDULES[name].text(), "streams.join()").values()
    # Where main has waited for side's last step, and reads none of its memory, it can.
    assert bool(found(text)) == (name != "a half on each")


@pytest.mark.parametrize("name", SPLIT)
def test_no_slice_can_be_another(name: str) -> None:
    texts = swapped_slices(SCHEDULES[name].text(), "mb")
    assert texts
    assert [line for line, text in texts.items() if not found(text)] == []


@pytest.mark.parametrize("name", ["halves", "four pieces", "three uneven pieces"])
def test_no_free_can_stand_above_its_wait(name: str) -> None:
    texts = earlier_frees(SCHEDULES[name].text())
    assert texts
    assert [line for line, text in texts.items() if not found(text)] == []


def test_a_base_must_outlive_slices_that_are_replaced_on_another_stream() -> None:
    text = SCHEDULES["halves, mlp aside"].text()
    assert "hidden_0, hidden_1 = hidden[mb_0], hidden[mb_1]" in text
    assert found(text) == []
    assert found(base_dropped(text, "hidden"))


def small(model_layers: int) -> Scheduled:
    model = type(TWO)(TWO.shapes, model_layers, TWO.results, TWO.head)
    return scheduled(model, {"attn": "side"}, 2, stagger("attn", "mlp"), "side")


def test_all_orders_and_starving_agree_on_every_removal() -> None:
    for schedule in (small(2), SCHEDULES["no split"]):
        plans = [schedule.plan, *(m.plan for m in removals(schedule.plan))]
        verdicts = set()
        for plan in plans:
            module = ModuleText(schedule.text(plan))
            recording = module.record(module.classes[0], persistent=("keys",))
            if recording.error:
                continue
            orders = Orders(recording)
            explored = orders.all(20_000)
            assert explored is not None
            assert bool(explored.faults) == bool(orders.starving())
            verdicts.add(bool(explored.faults))
        assert verdicts == {True, False}


def test_wrong_values_are_found_though_nothing_races() -> None:
    schedule = scheduled(TWO, {}, 1, order("attn", "mlp"))
    text = schedule.text()
    assert found(text) == []
    changed = text.replace("self.mlp(i, hidden, attn)", "self.mlp(i, attn, attn)", 1)
    assert changed != text
    assert found(changed) == ["the results are not those of the parts in program order"]


def test_a_step_that_does_not_run_is_a_fault() -> None:
    text = SCHEDULES["halves"].text()
    assert found(text.replace("attn_0_done = side.record()", "pass"))[0].startswith(
        ("NameError", "UnboundLocalError")
    )
