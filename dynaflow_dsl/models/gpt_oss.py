"""Trace targets for Hugging Face's GPT-OSS with random weights.

Sinks, windows in every other layer, experts in all. `decode` and `prefill` have one
entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import GptOssConfig, GptOssForCausalLM

from dynaflow_dsl.models.family import FIELDS, Family

GPT_OSS = Family(
    GptOssForCausalLM,
    GptOssConfig,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 32,
        "vocab_size": 512,
        "head_dim": 16,
        "sliding_window": 24,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    published={
        "20b": {
            "num_hidden_layers": 24,
            "num_local_experts": 32,
        },
        "120b": {
            "num_hidden_layers": 36,
            "num_local_experts": 128,
        },
    },
    fields={
        **FIELDS,
        "head_width": "head_dim",
        "window": "sliding_window",
        "experts": "num_local_experts",
        "active_experts": "num_experts_per_tok",
    },
)

decode, prefill, serve = GPT_OSS.decode, GPT_OSS.prefill, GPT_OSS.serve
