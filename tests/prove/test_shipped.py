"""The plans of shipped schedules, broken on purpose: some of them here, and the page
about all of them."""

from __future__ import annotations

import json

import pytest

from benchmarks.mutations import LIMIT, RESULTS, page, plans, shipped
from dynaflow_dsl.prove import prove
from tests.project.commands import ROOT
from tests.prove.program_mutations import mutations
from tests.simulator.verdict import judge_plan

# Of the mutations of these, one in so many.
SOME = {"llama/halves.dfs": 2, "clip/towers.dfs": 5}


@pytest.mark.parametrize("path", SOME)
def test_prove_refuses_exactly_what_does_harm(path: str) -> None:
    differing, harmful = [], 0
    for _, plan in plans(path):
        for mutation in list(mutations(plan))[:: SOME[path]]:
            faults = judge_plan(mutation.plan, LIMIT).faults
            harmful += bool(faults)
            if bool(faults) != (prove(mutation.plan).value is None):
                differing.append((mutation.kind, mutation.what, faults[:1]))
    assert differing == []
    assert harmful > 20


def test_the_page_is_that_of_the_whole_run() -> None:
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    written = (ROOT / "docs" / "mutations.md").read_text(encoding="utf-8")
    assert written == page(document)
    assert {name.partition(": ")[0] for name in document["plans"]} == set(shipped())
    assert all(row["differing"] == [] for row in document["plans"].values())
