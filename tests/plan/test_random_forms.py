"""What is accepted of random schedules of all forms is right in every order."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings

from dynaflow_dsl.bind import bind
from dynaflow_dsl.emit import emit
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.pipeline import understand
from dynaflow_dsl.plan import plan
from dynaflow_dsl.prove import prove
from dynaflow_dsl.source import Source
from tests.bind.graphs import graph
from tests.plan.random_forms import Form, forms
from tests.simulator.text import judge

# Of the text, of the model, and of a timeline on it.
REFUSED = {
    "DFS103",
    "DFS303",
    "DFS205",
    "DFS301",
    "DFS302",
    "DFS306",
    "DFS308",
    "DFS318",
}


def test_what_is_accepted_is_right() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=300,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(forms())
    def every_form(form: Form) -> None:
        codes = check(form)
        seen.update(codes)
        if not codes:
            seen.update(form.has)

    every_form()
    assert seen.keys() <= {
        *REFUSED,
        "gap",
        "joined",
        "after",
        "whole",
        "1 stacks",
        "2 stacks",
    }
    for form in ("gap", "joined", "after", "whole", "2 stacks"):
        assert seen[form] > 5, (form, seen)


def check(form: Form) -> set[str]:
    """The codes of a refusal; nothing once the module was found to be right."""
    file = understand(Source("s.dfs", form.schedule))
    if file.value is None:
        return {found.code for found in file.diagnostics}
    traced = TracedModel(
        target="a:b",
        arguments=(),
        model_class="Model",
        device="cpu",
        dtype="float32",
        captured_by="export",
        facts=(),
        fingerprint=(),
        graphs=(graph(form.graph),),
    )
    bound = bind(file.value.schedules[0], traced.graphs[0])
    if bound.value is None:
        return {found.code for found in bound.diagnostics}
    planned = plan(bound.value)
    if planned.value is None:
        return {found.code for found in planned.diagnostics}
    proved = prove(planned.value).unwrap()
    module = emit([proved], file.value, "s", "s.dfs", traced)
    assert judge(module.text, persistent=form.written) == []
    return set()
