"""Trace targets for Hugging Face's Qwen3-MoE with random weights.

`decode` and `prefill` have one entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from dynaflow_dsl.models.family import FIELDS, Family

QWEN3_MOE = Family(
    Qwen3MoeForCausalLM,
    Qwen3MoeConfig,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 512,
        "head_dim": 16,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
    published={
        "30b-a3b": {
            "num_hidden_layers": 48,
            "hidden_size": 2048,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "vocab_size": 151936,
            "max_position_embeddings": 40960,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "norm_topk_prob": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1000000.0,
            },
        },
    },
    fields={
        **FIELDS,
        "head_width": "head_dim",
        "experts": "num_experts",
        "active_experts": "num_experts_per_tok",
        "expert_intermediate": "moe_intermediate_size",
    },
)

decode, prefill, serve = QWEN3_MOE.decode, QWEN3_MOE.prefill, QWEN3_MOE.serve
