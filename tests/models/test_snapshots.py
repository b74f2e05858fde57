"""Targets that ship, and a model that does not, come back from their snapshots."""

from __future__ import annotations

import pytest
import transformers

from dynaflow_dsl.graph.snapshot import dump_snapshot, parse_snapshot
from dynaflow_dsl.models.decoder import decoder_spec, random_model
from dynaflow_dsl.trace import TraceSpec, load_target, trace

TARGETS = (
    "bert:encode",
    "clip:both",
    "deepseek_v2:decode",
    "deepseek_v3:decode",
    "gemma2:decode",
    "gemma3:decode",
    "gpt2:decode",
    "gpt_oss:decode",
    "llama:decode",
    "llama:flat",
    "mamba:decode",
    "mistral:decode",
    "mixtral:decode",
    "qwen2:decode",
    "qwen3:decode",
    "qwen3_moe:decode",
    "t5:decode",
    "vit:classify",
    "whisper:encode",
)


def check_snapshot(spec: TraceSpec) -> None:
    made = trace(spec, "target", {}).unwrap()
    assert parse_snapshot(dump_snapshot(made), "m.graph.json").unwrap() == made


@pytest.mark.parametrize("target", TARGETS)
def test_targets_come_back(target: str) -> None:
    check_snapshot(load_target(f"dynaflow_dsl.models.{target}", {}, None).unwrap())


def test_attention_with_dropout_and_a_view_comes_back() -> None:
    config = transformers.BloomConfig(
        vocab_size=64, hidden_size=32, n_layer=2, n_head=4
    )
    model = random_model(transformers.BloomForCausalLM, config)
    check_snapshot(decoder_spec(model, capacity=16, sequence=4))
