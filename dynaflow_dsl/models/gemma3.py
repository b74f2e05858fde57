"""Trace targets for Hugging Face's Gemma 3 with random weights.

Layers with a window have a rotary table of their own. `decode` and `prefill` have one
entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from dynaflow_dsl.models.family import FIELDS, Family

GEMMA3 = Family(
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 512,
        "head_dim": 16,
        "sliding_window": 24,
        "sliding_window_pattern": 2,
    },
    published={
        "1b": {
            "num_hidden_layers": 26,
            "hidden_size": 1152,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "intermediate_size": 6912,
            "vocab_size": 262144,
            "max_position_embeddings": 32768,
            "sliding_window": 512,
            "query_pre_attn_scalar": 256,
        },
    },
    fields={
        **FIELDS,
        "head_width": "head_dim",
        "window": "sliding_window",
    },
)

decode, prefill, serve = GEMMA3.decode, GEMMA3.prefill, GEMMA3.serve
