"""Trace targets for Hugging Face's DeepSeek-V3 with random weights.

Latent attention, dense first layers, shared experts. `decode` and `prefill` have one
entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

from dynaflow_dsl.models.family import FIELDS, Family

DEEPSEEK_V3 = Family(
    DeepseekV3ForCausalLM,
    DeepseekV3Config,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 512,
        "q_lora_rank": 24,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "n_shared_experts": 1,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    },
    published={
        "671b": {
            "num_hidden_layers": 61,
            "first_k_dense_replace": 3,
        },
    },
    fields={
        **FIELDS,
        "experts": "n_routed_experts",
        "active_experts": "num_experts_per_tok",
        "expert_intermediate": "moe_intermediate_size",
    },
)

decode, prefill, serve = DEEPSEEK_V3.decode, DEEPSEEK_V3.prefill, DEEPSEEK_V3.serve
