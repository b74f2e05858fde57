"""Trace targets for Hugging Face's GPT-2 with random weights.

`decode` and `prefill` have one entry each, `serve` has both.
"""

from __future__ import annotations

from transformers import GPT2Config, GPT2LMHeadModel

from dynaflow_dsl.models.family import Family

GPT2 = Family(
    GPT2LMHeadModel,
    GPT2Config,
    tiny={
        "n_layer": 4,
        "n_embd": 64,
        "n_head": 4,
        "vocab_size": 512,
        "bos_token_id": None,
        "eos_token_id": None,
    },
    published={
        "124m": {
            "n_layer": 12,
            "n_embd": 768,
            "n_head": 12,
            "vocab_size": 50257,
        },
        "1.5b": {
            "n_layer": 48,
            "n_embd": 1600,
            "n_head": 25,
            "vocab_size": 50257,
        },
    },
    fields={
        "layers": "n_layer",
        "hidden": "n_embd",
        "heads": "n_head",
        "intermediate": "n_inner",
        "vocab": "vocab_size",
    },
)

decode, prefill, serve = GPT2.decode, GPT2.prefill, GPT2.serve
