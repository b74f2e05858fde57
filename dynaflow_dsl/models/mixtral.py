"""Trace targets for Hugging Face's Mixtral with random weights.

`decode` and `prefill` have one entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import MixtralConfig, MixtralForCausalLM

from dynaflow_dsl.models.family import FIELDS, Family

MIXTRAL = Family(
    MixtralForCausalLM,
    MixtralConfig,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 512,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    published={
        "8x7b": {
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 32000,
            "max_position_embeddings": 32768,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1000000.0,
            },
        },
    },
    fields={
        **FIELDS,
        "experts": "num_local_experts",
        "active_experts": "num_experts_per_tok",
    },
)

decode, prefill, serve = MIXTRAL.decode, MIXTRAL.prefill, MIXTRAL.serve
