"""Trace targets for Hugging Face's Qwen3 with random weights.

`decode` and `prefill` have one entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import Qwen3Config, Qwen3ForCausalLM

from dynaflow_dsl.models.family import FIELDS, Family

QWEN3 = Family(
    Qwen3ForCausalLM,
    Qwen3Config,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 512,
        "head_dim": 16,
    },
    published={
        "8b": {
            "num_hidden_layers": 36,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 12288,
            "vocab_size": 151936,
            "max_position_embeddings": 40960,
            "rms_norm_eps": 1e-06,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1000000.0,
            },
        },
    },
    fields={
        **FIELDS,
        "head_width": "head_dim",
    },
)

decode, prefill, serve = QWEN3.decode, QWEN3.prefill, QWEN3.serve
