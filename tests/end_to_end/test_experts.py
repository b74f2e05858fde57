"""Experts as the library runs them: what can be split, and what can be traced."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.models.decoder import decoder_spec
from dynaflow_dsl.models.deepseek_v3 import DEEPSEEK_V3
from dynaflow_dsl.models.qwen3_moe import QWEN3_MOE
from dynaflow_dsl.models.random_weights import random_model
from dynaflow_dsl.trace import TraceSpec
from tests.end_to_end.building import build, run_verify

SCHEDULES = Path(__file__).parents[2] / "schedules"
HALVES = SCHEDULES / "moe" / "halves.dfs"

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


def test_sorted_experts_can_be_split(tmp_path: Path) -> None:
    """Tokens are sorted by expert and put back, which the rules follow."""
    spec = experts("grouped_mm")
    made = build(spec, HALVES.read_text("utf-8"), tmp_path)
    (report,) = run_verify(made, batches=(1, 5))
    assert report.ok, str(report)


@pytest.mark.parametrize("implementation", ["batched_mm", "grouped_mm"])
def test_the_shared_expert_runs_beside_the_others(
    implementation: str, tmp_path: Path
) -> None:
    config = DEEPSEEK_V3.configuration({"layers": 3, "vocab": 64}, 16)
    model = random_model(DEEPSEEK_V3.model, config)
    model.set_experts_implementation(implementation)
    text = (SCHEDULES / "deepseek" / "shared.dfs").read_text("utf-8")
    made = build(decoder_spec(model, capacity=16), text, tmp_path)
    (report,) = run_verify(made, batches=(1, 5))
    assert report.ok, str(report)
    assert ("routed", "shared") in report.recordings[0].concurrent


@pytest.mark.parametrize("implementation", ["batched_mm", "grouped_mm"])
def test_experts_run_in_a_schedule_without_a_split(
    implementation: str, tmp_path: Path
) -> None:
    made = build(experts(implementation), BESIDE, tmp_path)
    for report in run_verify(made, batches=(1, 5)):
        assert report.ok, str(report)
