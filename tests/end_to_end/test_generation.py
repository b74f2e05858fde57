"""Greedy tokens of scheduled steps equal those of the model's own `generate()`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.models import llama
from dynaflow_dsl.verification.trial import run_trial
from tests.end_to_end.building import build, halves

ROWS = range(2, 10)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_prefill_and_decode_in_halves(tmp_path: Path, seed: int) -> None:
    spec = llama.serve(layers=4, seed=seed, initializer_range=0.3, sequence=8)
    built = build(spec, halves(), tmp_path)
    executor = built.module.load(spec.model, compile=False)
    steps = {"prefill": executor.prefill, "decode": executor.decode}
    assert spec.trial is not None
    report = run_trial(spec.trial, steps, ROWS, (seed,))
    assert report.ok, str(report)
    assert {run.length for run in report.runs} == {16}
    # Rows that repeat a token would hide wrong positions and masks.
    assert min(run.distinct for run in report.runs) >= 8, str(report)


def test_a_wrong_mask_changes_tokens(tmp_path: Path) -> None:
    spec = llama.serve(layers=4, initializer_range=0.3, sequence=8)
    built = build(spec, halves(), tmp_path)
    text = built.compiled.text
    wrong = text.replace(
        "mask_0, mask_1 = mask[half_0]", "mask_0, mask_1 = mask[half_1]"
    )
    assert wrong != text
    executor = built.mutated(wrong).load(spec.model, compile=False)
    assert spec.trial is not None
    steps = {"decode": executor.decode}
    assert not run_trial(spec.trial, steps, (4,)).ok
