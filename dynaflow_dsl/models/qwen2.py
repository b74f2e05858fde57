"""Trace targets for Hugging Face's Qwen2 with random weights.

`decode` and `prefill` have one entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import Qwen2Config, Qwen2ForCausalLM

from dynaflow_dsl.models.family import Family

QWEN2 = Family(
    Qwen2ForCausalLM,
    Qwen2Config,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 512,
    },
    published={
        "7b": {
            "num_hidden_layers": 28,
            "hidden_size": 3584,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
            "vocab_size": 152064,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-06,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1000000.0,
            },
        },
    },
)

decode, prefill, serve = QWEN2.decode, QWEN2.prefill, QWEN2.serve
