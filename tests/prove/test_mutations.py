"""`prove` against the simulator, which shares nothing with it, on broken plans."""

from __future__ import annotations

from collections import Counter

import pytest

from dynaflow_dsl.plan.model import Plan
from dynaflow_dsl.prove import prove
from tests.prove.program_mutations import mutations, removals
from tests.prove.schedules import SHORT, fetching, forms, schedules
from tests.simulator.text import judge
from tests.simulator.verdict import judge_plan

SCHEDULES = {**schedules(), **forms(), **fetching()}


def refused(plan: Plan) -> bool:
    return prove(plan).value is None


@pytest.mark.parametrize("name", SCHEDULES)
def test_prove_and_the_simulator_accept_the_plan_as_it_is(name: str) -> None:
    schedule = SCHEDULES[name]
    assert prove(schedule.plan).ok
    assert judge_plan(schedule.plan).faults == ()
    assert judge(schedule.text(), persistent=("keys",)) == []


@pytest.mark.parametrize("name", SCHEDULES)
def test_prove_refuses_exactly_what_the_simulator_finds_harmful(name: str) -> None:
    table: Counter[tuple[str, str]] = Counter()
    differing = []
    for mutation in mutations(SCHEDULES[name].plan):
        faults = judge_plan(mutation.plan).faults
        by_prove = refused(mutation.plan)
        table[(mutation.kind, "refused" if by_prove else "harmless")] += 1
        if by_prove != bool(faults):
            verdict = "refuses" if by_prove else "accepts"
            differing.append(
                f"{mutation.kind}: {mutation.what}: prove {verdict}, "
                f"simulator: {faults[:1]}"
            )
    print(f"\n{name}")
    for (kind, verdict), count in sorted(table.items()):
        print(f"  {kind:<22} {verdict:<9} {count}")
    assert not differing, "\n".join(differing)


# The plan says how often a part runs, for which layer and piece, and beside what.
# Its text, judged by its results, may well do something else and be sound.
OF_THE_PLAN = {
    "Call twice",
    "Call of the layer before",
    "Call of another piece",
    "Call on another stream",
}


@pytest.mark.parametrize("name", SHORT)
def test_a_plan_and_its_text_are_judged_alike(name: str) -> None:
    schedule = SCHEDULES[name]
    differing = []
    for mutation in mutations(schedule.plan):
        faults = judge_plan(mutation.plan).faults
        in_text = judge(schedule.text(mutation.plan), persistent=("keys",))
        if faults and not in_text and mutation.kind in OF_THE_PLAN:
            continue
        if bool(faults) != bool(in_text):
            differing.append((mutation.kind, mutation.what, faults[:1], in_text[:1]))
    assert differing == []


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_wait_is_needed(name: str) -> None:
    waits = [m for m in removals(SCHEDULES[name].plan) if m.kind == "Wait removed"]
    assert [m.what for m in waits if not refused(m.plan)] == []
    assert waits
