"""Trace targets for Hugging Face's Llama with random weights.

`decode` and `prefill` have one entry each, `serve` has both. For a model of your own
use `dynaflow_dsl.models.decoder.decoder_spec`.
"""

from __future__ import annotations

from transformers import LlamaConfig, LlamaForCausalLM

from dynaflow_dsl.models.decoder import decoder_spec, random_model
from dynaflow_dsl.trace import TraceSpec


def decode(
    layers: int = 4,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int = 128,
    vocab: int = 512,
    capacity: int = 64,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
    initializer_range: float = 0.3,
) -> TraceSpec:
    """One token for every row of a batch."""
    model = _model(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        intermediate=intermediate,
        vocab=vocab,
        capacity=capacity,
        dtype=dtype,
        device=device,
        meta=meta,
        seed=seed,
        initializer_range=initializer_range,
    )
    return decoder_spec(model, capacity=capacity, device=device)


def prefill(
    layers: int = 4,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int = 128,
    vocab: int = 512,
    capacity: int = 64,
    sequence: int = 16,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
    initializer_range: float = 0.3,
) -> TraceSpec:
    """Prompts of `sequence` tokens, padded on the left."""
    model = _model(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        intermediate=intermediate,
        vocab=vocab,
        capacity=capacity,
        dtype=dtype,
        device=device,
        meta=meta,
        seed=seed,
        initializer_range=initializer_range,
    )
    return decoder_spec(
        model, capacity=capacity, sequence=sequence, decode=False, device=device
    )


def serve(
    layers: int = 4,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int = 128,
    vocab: int = 512,
    capacity: int = 64,
    sequence: int = 16,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
    initializer_range: float = 0.3,
) -> TraceSpec:
    """Both entries, `decode` and `prefill`, of one model."""
    model = _model(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        intermediate=intermediate,
        vocab=vocab,
        capacity=capacity,
        dtype=dtype,
        device=device,
        meta=meta,
        seed=seed,
        initializer_range=initializer_range,
    )
    return decoder_spec(model, capacity=capacity, sequence=sequence, device=device)


def _model(
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    vocab: int,
    capacity: int,
    dtype: str,
    device: str,
    meta: bool,
    seed: int,
    initializer_range: float,
) -> LlamaForCausalLM:
    """The model; `meta` makes it without memory, for shapes that do not fit."""
    config = LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=intermediate,
        vocab_size=vocab,
        max_position_embeddings=max(capacity, 128),
        initializer_range=initializer_range,
    )
    return random_model(
        LlamaForCausalLM, config, dtype=dtype, device=device, meta=meta, seed=seed
    )
