"""Trace targets for Hugging Face's Llama 4, texts only, with random weights.

Three layers of four attend within a chunk of the text and have rotary positions; the
fourth attends to all of it. Experts are in all layers, or in every other one. `decode`
and `prefill` have one entry each, `serve` has both.

Layers without rotary positions scale queries by a token's place, in steps of thousands
(`floor_scale`). The library counts that place in the cache, padding included.
"""

from __future__ import annotations

from transformers import Llama4ForCausalLM, Llama4TextConfig

from dynaflow_dsl.models.family import FIELDS, Family

LLAMA4 = Family(
    Llama4ForCausalLM,
    Llama4TextConfig,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 32,
        "intermediate_size_mlp": 64,
        "vocab_size": 512,
        "head_dim": 16,
        "attention_chunk_size": 24,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
    },
    published={
        "17b-16e": {
            "max_position_embeddings": 10485760,
        },
        "17b-128e": {
            "max_position_embeddings": 1048576,
            "num_local_experts": 128,
            "interleave_moe_layer_step": 2,
            "use_qk_norm": False,
        },
    },
    fields={
        **FIELDS,
        "head_width": "head_dim",
        "window": "attention_chunk_size",
        "experts": "num_local_experts",
        "active_experts": "num_experts_per_tok",
    },
)

decode, prefill, serve = LLAMA4.decode, LLAMA4.prefill, LLAMA4.serve
