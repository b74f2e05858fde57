"""Decoders of other families: no line of the compiler knows any of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from torch import nn
from transformers import PreTrainedConfig

from dynaflow_dsl.models.decoder import decoder_spec, random_model
from dynaflow_dsl.trace import Entry, TraceSpec
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


ENCODER_AND_DECODER = """dfs 1

schedule t5:
    stream side

    split batch into [2, 1] as half

    each block in .encoder.block.*:
        part attn on side = .layer.0
        part mlp = .layer.1

        stagger half by 1:
            attn
            mlp

    each layer in .decoder.block.*:
        part own_attn on side = .layer.0
        part cross = .layer.1
        part feed on side = .layer.2

        stagger half by 1:
            own_attn
            cross
            feed
"""


class Logits(nn.Module):
    """Tokens of both sides to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = self.model(input_ids=x, decoder_input_ids=y, use_cache=False)
        logits: torch.Tensor = made.logits
        return logits


def test_an_encoder_and_a_decoder_of_t5(tmp_path: Path) -> None:
    config = transformers.T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=3,
        num_decoder_layers=4,
        num_heads=4,
        use_cache=False,
        attn_implementation="eager",
    )
    rows = ("batch", None)
    spec = TraceSpec(
        model=random_model(transformers.T5ForConditionalGeneration, config),
        adapter=Logits,
        root="model",
        entries={
            "forward": Entry(
                lambda sizes: tuple(
                    torch.randint(0, 64, (sizes["batch"], length)) for length in (5, 4)
                )
            )
        },
        dims={"x": rows, "y": rows},
        dimensions={"batch": (1, None)},
    )
    built = build(spec, ENCODER_AND_DECODER, tmp_path)
    for report in run_verify(built, batches=(1, 3, 5)):
        assert report.ok, str(report)
    # The norm behind the encoder.
    assert "self.gap(0, hidden_0)" in built.compiled.text


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
