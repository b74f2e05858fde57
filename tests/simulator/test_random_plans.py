"""`prove` against the simulator, on plans drawn at random.

The two share no code. Of each drawn plan there is the plan as it is and four broken
ones. `pytest -s` prints how many plans there are of each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from dynaflow_dsl.diagnostics import Severity
from dynaflow_dsl.plan.model import (
    Allocate,
    Call,
    InputOperand,
    Loop,
    PieceOf,
    Plan,
    Slices,
)
from dynaflow_dsl.prove import prove
from tests.simulator.drafts import Draft
from tests.simulator.planted import with_faults
from tests.simulator.random_plans import random_plan, sequential
from tests.simulator.verdict import judge_plan

DRAWN = 4_600
BROKEN = 4

# What the simulator sees, by the code under which `prove` says so.
KINDS = {
    "DFS302": {"overlap"},
    "DFS701": {"race", "overwritten", "order", "unforked", "unjoined", "after"},
    "DFS702": {"freed", "output"},
    "DFS705": {"shared"},
    "DFS707": {"value", "unbound", "missing"},
}
SHARES = ("views", "in-place writes", "rotating buffers", "captures")


def plans() -> Iterator[tuple[str, Draft, Plan]]:
    """All plans, with what it takes to draw each again."""
    for seed in range(DRAWN):
        random = Random(seed)
        drawn = random_plan(random)
        program = sequential(drawn.drawing, drawn.binding)
        broken = (with_faults(drawn, random) for _ in range(BROKEN))
        for number, draft in enumerate((drawn, *broken)):
            yield f"seed {seed}, number {number}", draft, draft.plan(program)


def features(draft: Draft, plan: Plan) -> Iterator[str]:
    """What a plan has, of what matters to the proof."""
    statements = [statement for _, statement in draft.lines]
    operands = [o for s in statements if isinstance(s, Call) for o in s.operands]
    if any(isinstance(s, Slices) for s in statements) or any(
        isinstance(o, PieceOf) or (isinstance(o, InputOperand) and o.piece is not None)
        for o in operands
    ):
        yield "views"
    parts = draft.drawing.parts
    if any(writes for part in parts for _, writes in part.touches):
        yield "in-place writes"
    if any(name == "ring" for part in parts for name, _ in part.touches):
        yield "rotating buffers"
    if draft.drawing.captured:
        yield "captures"
    if any(isinstance(s, Allocate) for s in statements):
        yield "results in rows"
    if any(part.group for part in parts):
        yield "process groups"
    if any(isinstance(segment, Loop) for segment in plan.step.segments):
        yield "loops"


def disagreement(plan: Plan, kinds: frozenset[str]) -> str:
    """How `prove` differs from what the simulator found; nothing where it does not."""
    proved = prove(plan, equal=("batch",))
    found = {d.code for d in proved.diagnostics if d.severity is Severity.ERROR}
    if bool(found) != bool(kinds) or (proved.value is None) != bool(found):
        return f"prove says {sorted(found)}, the simulator {sorted(kinds)}"
    if "unbound" in kinds:
        # The step stops there; what `prove` says besides is about a step that goes on.
        return "" if "DFS707" in found else f"prove says {sorted(found)}, not DFS707"
    expected = {code for code, named in KINDS.items() if named & kinds}
    if len(kinds) == 1 and found != expected:
        return f"prove says {sorted(found)} where {sorted(kinds)} is all that is wrong"
    return ""


def test_prove_agrees_with_the_simulator_on_random_plans() -> None:
    counts: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    differing = []
    for origin, draft, plan in plans():
        verdict = judge_plan(plan)
        assert verdict.complete, origin
        counts["all"] += 1
        counts["valid"] += not verdict.faults
        counts.update(features(draft, plan))
        if len(verdict.kinds) == 1:
            alone.update(verdict.kinds)
        counts["several faults"] += len(verdict.kinds) > 1
        if said := disagreement(plan, verdict.kinds):
            differing.append(f"{origin}: {said}: {verdict.faults[:2]}")
    print(f"\n{counts['all']} plans")
    others = ("results in rows", "process groups", "loops")
    for name in ("valid", "several faults", *SHARES, *others):
        print(f"  {name:<20}{counts[name]:>6}  {counts[name] / counts['all']:.0%}")
    print("faults that stand alone")
    for code, kinds in KINDS.items():
        for kind in sorted(kinds):
            print(f"  {kind:<14}{code}{alone[kind]:>6}")
    assert differing == []
    assert counts["all"] >= 20_000
    assert counts["valid"] >= 0.3 * counts["all"]
    assert all(counts[name] >= 0.2 * counts["all"] for name in SHARES)
    assert counts["results in rows"] >= 1_000
    kinds = {kind for named in KINDS.values() for kind in named}
    assert {kind: alone[kind] for kind in kinds if alone[kind] < 500} == {}


def test_a_seed_draws_the_same_plan_again() -> None:
    first, second = ([plan for _, _, plan in _some()] for _ in range(2))
    assert first == second


def _some() -> Iterator[tuple[str, Draft, Plan]]:
    for n, drawn in enumerate(plans()):
        if n == 40:
            return
        yield drawn
