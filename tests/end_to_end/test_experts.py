"""Experts as the library runs them: what can be split, and what can be traced."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl import pipeline
from dynaflow_dsl.models.decoder import decoder_spec
from dynaflow_dsl.models.qwen3_moe import QWEN3_MOE
from dynaflow_dsl.models.random_weights import random_model
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import TraceSpec, trace
from tests.end_to_end.building import build, run_verify

HALVES = Path(__file__).parents[2] / "schedules" / "moe" / "halves.dfs"

BESIDE = """dfs 1

schedule beside:
    stream side

    each layer in .model.layers.*:
        part norm = .input_layernorm
        part query = .self_attn.q_proj + .self_attn.q_norm
        part key on side = .self_attn.k_proj + .self_attn.k_norm
        part others = rest

        order:
            norm
            query | key
            others
"""


def experts(implementation: str) -> TraceSpec:
    model = random_model(
        QWEN3_MOE.model, QWEN3_MOE.configuration({"layers": 2, "vocab": 64}, 16)
    )
    model.set_experts_implementation(implementation)
    return decoder_spec(model, capacity=16)


def test_sorted_experts_cannot_be_split() -> None:
    """Sorting tokens by expert mixes rows, operation by operation."""
    traced = trace(experts("grouped_mm"), "target", {}).unwrap()
    file = pipeline.understand(Source("moe.dfs", HALVES.read_text("utf-8"))).unwrap()
    found = pipeline.compile_schedules(file, traced)
    assert found.value is None
    assert {finding.code for finding in found.diagnostics} == {"DFS601"}
    assert "sort" in str(found.diagnostics[0].notes)


@pytest.mark.parametrize("implementation", ["batched_mm", "grouped_mm"])
def test_experts_run_in_a_schedule_without_a_split(
    implementation: str, tmp_path: Path
) -> None:
    made = build(experts(implementation), BESIDE, tmp_path)
    for report in run_verify(made, batches=(1, 5)):
        assert report.ok, str(report)
