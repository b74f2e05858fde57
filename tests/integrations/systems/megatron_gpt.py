"""Megatron-core's GPT on one rank, or on the ranks of tensor parallelism.

Its layers are the local ones, without Transformer Engine. Its own attention keeps a
buffer and a state of random numbers on a CUDA device. The specification of a layer may
name another one: here it is torch's.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from comparing import HERE, PARTS, RANK, RANKS, compare, prepare
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import distributed, nn


class Attention(nn.Module):
    """Causal attention of [sequence, batch, heads, width]."""

    def __init__(self, config: Any, *given: Any, **named: Any) -> None:
        super().__init__()

    def forward(
        self, query: Any, key: Any, value: Any, *given: Any, **named: Any
    ) -> Any:
        """Gives [sequence, batch, heads * width]."""
        by_head = (each.permute(1, 2, 0, 3) for each in (query, key, value))
        attended = nn.functional.scaled_dot_product_attention(*by_head, is_causal=True)
        return attended.permute(2, 0, 1, 3).flatten(2)


prepare()
distributed.init_process_group("gloo", rank=RANK, world_size=RANKS)
parallel_state.initialize_model_parallel(tensor_model_parallel_size=RANKS)
config = TransformerConfig(
    num_layers=3,
    hidden_size=64,
    num_attention_heads=4,
    ffn_hidden_size=128,
    use_cpu_initialization=True,
    tensor_model_parallel_size=RANKS,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    pipeline_dtype=torch.float32,
)
layers = get_gpt_layer_local_spec()
layers.submodules.self_attention.submodules.core_attention = Attention
model = GPTModel(config, layers, vocab_size=128, max_sequence_length=64).eval()
name = "megatron_halves.dfs" if RANKS == 1 else "megatron_ranks.dfs"

# What a user adds:
torch._dynamo.config.ignore_logging_functions.add(warnings.warn)
step = torch.compile(
    model,
    backend="dynaflow",
    options={
        "schedule": str(HERE / name),
        "dims": {"input_ids": ("batch", None), "position_ids": ("batch", None)},
        "module": f"executors/rank_{RANK}",
        **PARTS,
    },
)
# So much.

causal = torch.ones(1, 1, 16, 16).triu(1).bool()


def make(rows: int) -> dict[str, Any]:
    """Tokens, the same ones on every rank."""
    return {
        "input_ids": torch.randint(0, 128, (rows, 16)),
        "position_ids": torch.arange(16).repeat(rows, 1),
        "attention_mask": causal,
    }


compare(step, model, make)
distributed.destroy_process_group()
