"""Trace targets for Hugging Face's Mistral with random weights.

Every layer sees a window. `decode` and `prefill` have one
entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import MistralConfig, MistralForCausalLM

from dynaflow_dsl.models.family import FIELDS, Family

MISTRAL = Family(
    MistralForCausalLM,
    MistralConfig,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 512,
        "sliding_window": 24,
    },
    published={
        "7b": {
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 32000,
            "max_position_embeddings": 32768,
            "sliding_window": 4096,
            "rms_norm_eps": 1e-05,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
            },
        },
    },
    fields={
        **FIELDS,
        "window": "sliding_window",
    },
)

decode, prefill, serve = MISTRAL.decode, MISTRAL.prefill, MISTRAL.serve
