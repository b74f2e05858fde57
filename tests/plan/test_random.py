from __future__ import annotations

from hypothesis import HealthCheck, assume, event, given, settings

from dynaflow_dsl.bind import bind
from dynaflow_dsl.emit import emit
from dynaflow_dsl.plan import plan
from dynaflow_dsl.prove import prove
from tests.plan.layered import file_of, graph_of, traced
from tests.plan.random_schedules import Case, cases
from tests.plan.reasons import reasons
from tests.simulator.text import judge

# What a refusal says, and the reason for it.
CODES = {"DFS301": "early", "DFS302": "early or ordered", "DFS308": "replaced"}


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(cases())
def test_plans_are_right_and_refusals_have_a_reason(case: Case) -> None:
    model = case.model
    file = file_of(model, case.on, case.pieces, case.timeline, case.streams)
    bound = bind(file.schedules[0], graph_of(model))
    if bound.value is None:
        # Not this test's matter: layers whose results are not read alike.
        event(f"not bound: {sorted({d.code for d in bound.diagnostics})}")
        assume(False)
    planned = plan(bound.unwrap())
    found = reasons(model, case.windows, case.pieces)
    codes = {diagnostic.code for diagnostic in planned.diagnostics}
    event(f"{sorted(codes)} {sorted(found)}")
    if planned.value is None:
        assert codes <= CODES.keys()
        assert found, f"refused without a reason: {planned.diagnostics}"
        assert all(any(reason in CODES[code] for reason in found) for code in codes)
        return
    assert not found, f"accepted in spite of {found}"
    proved = prove(planned.value).unwrap()
    module = emit([proved], file, "s", "s.dfs", traced(model))
    assert judge(module.text, persistent=_caches(case)) == []


def _caches(case: Case) -> tuple[str, ...]:
    touched = {shape.cache for shape in case.model.shapes}
    names = {"r": "keys", "w": "keys", "R": "state", "W": "state"}
    return tuple(sorted({names[kind] for kind in touched if kind}))
