"""Trace targets for Hugging Face's Llama with random weights.

`decode` and `prefill` have one entry each, `serve` has both, and `flat` has tokens of
several requests in one step. For a model of your own
use `dynaflow_dsl.models.decoder.decoder_spec`.
"""

from __future__ import annotations

from transformers import LlamaConfig, LlamaForCausalLM

from dynaflow_dsl.models.family import Family

_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_LLAMA_3 = {
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_parameters": _ROPE,
}

LLAMA = Family(
    LlamaForCausalLM,
    LlamaConfig,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 512,
    },
    published={
        "8b": {
            **_LLAMA_3,
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "intermediate_size": 14336,
        },
        "70b": {
            **_LLAMA_3,
            "num_hidden_layers": 80,
            "hidden_size": 8192,
            "num_attention_heads": 64,
            "intermediate_size": 28672,
        },
    },
)

decode, prefill, serve = LLAMA.decode, LLAMA.prefill, LLAMA.serve
flat = LLAMA.flat
