"""Trace targets for Hugging Face's Gemma 2 with random weights.

Every other layer sees a window. `decode` and `prefill` have one
entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import Gemma2Config, Gemma2ForCausalLM

from dynaflow_dsl.models.family import FIELDS, Family

GEMMA2 = Family(
    Gemma2ForCausalLM,
    Gemma2Config,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 512,
        "head_dim": 16,
        "sliding_window": 24,
    },
    published={
        "2b": {
            "num_hidden_layers": 26,
            "hidden_size": 2304,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "intermediate_size": 9216,
            "vocab_size": 256000,
            "max_position_embeddings": 8192,
            "sliding_window": 4096,
            "query_pre_attn_scalar": 256,
        },
        "9b": {
            "num_hidden_layers": 42,
            "hidden_size": 3584,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 256,
            "intermediate_size": 14336,
            "vocab_size": 256000,
            "max_position_embeddings": 8192,
            "sliding_window": 4096,
            "query_pre_attn_scalar": 256,
        },
    },
    fields={
        **FIELDS,
        "head_width": "head_dim",
        "window": "sliding_window",
    },
)

decode, prefill, serve = GEMMA2.decode, GEMMA2.prefill, GEMMA2.serve
