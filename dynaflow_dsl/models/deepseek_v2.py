"""Trace targets for Hugging Face's DeepSeek-V2 with random weights.

Latent attention, a dense first layer, shared experts. `decode` and `prefill` have one
entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

from dynaflow_dsl.models.family import FIELDS, Family

DEEPSEEK_V2 = Family(
    DeepseekV2ForCausalLM,
    DeepseekV2Config,
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
        "topk_method": "group_limited_greedy",
    },
    published={
        "lite": {
            "num_hidden_layers": 27,
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "q_lora_rank": None,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128,
            "v_head_dim": 128,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "topk_method": "greedy",
            "vocab_size": 102400,
        },
    },
    fields={
        **FIELDS,
        "experts": "n_routed_experts",
        "active_experts": "num_experts_per_tok",
        "expert_intermediate": "moe_intermediate_size",
    },
)

decode, prefill, serve = DEEPSEEK_V2.decode, DEEPSEEK_V2.prefill, DEEPSEEK_V2.serve
