"""Decoders of other families: no line of the compiler knows any of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from transformers import PreTrainedConfig

from dynaflow_dsl.models.decoder import decoder_spec, random_model
from tests.end_to_end.building import build, halves, run_verify

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}

# Norms after attention instead of before it.
AFTER = {".input_layernorm + .self_attn": ".self_attn + .post_attention_layernorm"}

FAMILIES: dict[str, tuple[dict[str, object], dict[str, str]]] = {
    "Qwen3": ({"head_dim": 8}, {}),
    "Olmo2": ({}, AFTER),
    "Phi3": ({}, {}),
    # Attention and MLP read the same norm.
    "Cohere": ({}, {}),
    "Gemma2": ({"head_dim": 8}, {}),
    # Every fourth layer has no rotary embedding: two programs.
    "SmolLM3": ({}, {}),
    # Two rotary tables by turns, an output of `before` each.
    "Gemma3": (
        {
            "head_dim": 8,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
        {},
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_decode_and_prefill_in_uneven_pieces(name: str, tmp_path: Path) -> None:
    options, replaced = FAMILIES[name]
    text_config = {"Gemma3": "Gemma3Text"}.get(name, name)
    config: PreTrainedConfig = getattr(transformers, f"{text_config}Config")(
        **{**SHAPE, **options}
    )
    model = random_model(getattr(transformers, f"{name}ForCausalLM"), config)
    spec = decoder_spec(model, capacity=16, sequence=6)
    text = halves(pieces="[3, 2]")
    for old, new in replaced.items():
        text = text.replace(old, new)
    built = build(spec, text, tmp_path)
    for report in run_verify(built, batches=(1, 4, 5)):
        assert report.ok, str(report)
    if name == "SmolLM3":
        assert "which=(0, 0, 0, 1)" in built.compiled.text
    if name == "Gemma3":
        assert "[i % 2]" in built.compiled.text
