"""Every wait, free, join and slice of emitted modules matters, and verify sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.models import llama
from tests.end_to_end.building import Built, build, run_verify
from tests.end_to_end.test_schedules import SCHEDULES
from tests.verification.mutations import (
    Mutation,
    with_early_frees,
    with_wrong_slices,
    without_bases,
    without_joins,
    without_waits,
)

MUTATED = ("halves", "both", "stages", "beside")


@pytest.fixture(scope="module", params=MUTATED)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Built:
    folder = tmp_path_factory.mktemp(request.param)
    return build(llama.decode(layers=3), SCHEDULES[request.param], folder)


def faults(built: Built, mutation: Mutation) -> set[str]:
    """Kinds of faults that the recording finds in a mutated module."""
    module = built.mutated(mutation.text)
    (report,) = run_verify(built, module=module, batches=(6,))
    return {fault.kind for recorded in report.recordings for fault in recorded.faults}


def test_each_wait_is_needed(built: Built) -> None:
    mutations = without_waits(built.compiled.text)
    assert mutations
    missed = [m.name for m in mutations if not faults(built, m)]
    assert not missed


def test_the_join_is_needed(built: Built) -> None:
    mutations = without_joins(built.compiled.text)
    assert len(mutations) == 1
    assert faults(built, mutations[0])


def test_early_frees_are_found(built: Built) -> None:
    mutations = with_early_frees(built.compiled.text)
    missed = [
        m.name
        for m in mutations
        # While its slices live, the name of a whole may go: they keep the storage.
        if not faults(built, m) and not m.name.startswith("del hidden ")
    ]
    assert not missed


def test_wrong_slices_change_the_result(built: Built) -> None:
    mutations = with_wrong_slices(built.compiled.text)
    if built.compiled.bindings[0].schedule.split is None:
        assert not mutations
        return
    assert mutations
    for mutation in mutations:
        module = built.mutated(mutation.text)
        try:
            (report,) = run_verify(built, module=module, batches=(6,))
        except RuntimeError:
            # Pieces of another size do not even fit together.
            continue
        assert not report.ok, mutation.name


def test_rebinding_views_needs_the_whole(tmp_path: Path) -> None:
    """With both parts on two streams nothing waits in the loop, so dropping the whole
    early lets the first stream take its memory back while the second reads it."""
    built = build(llama.decode(layers=3), SCHEDULES["both"], tmp_path)
    dropped = [m for m in without_bases(built.compiled.text) if "hidden" in m.name]
    assert dropped
    assert faults(built, dropped[0])
