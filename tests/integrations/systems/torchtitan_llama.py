"""torchtitan's Llama 3, in its small configuration, with attention by torch's SDPA.

Its configurations choose FlexAttention, a call of another graph, which no executor has;
`ScaledDotProductAttention` is torchtitan's too.
"""

from __future__ import annotations

from typing import Any

import torch
from comparing import HERE, PARTS, compare, prepare
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import llama3_configs

prepare()
config = llama3_configs["debugmodel"](attn_backend="flex")
for layer in config.layers:
    layer.attention.inner_attention = ScaledDotProductAttention.Config()
model = config.build()
model.init_states()
model.eval()

# What a user adds:
step = torch.compile(
    model,
    backend="dynaflow",
    options={
        "schedule": str(HERE / "torchtitan_halves.dfs"),
        "dims": {"tokens": ("batch", None), "positions": ("batch", None)},
        **PARTS,
    },
)
# So much.


def make(rows: int) -> dict[str, Any]:
    """Tokens, and where they stand."""
    return {
        "tokens": torch.randint(0, 2048, (rows, 16)),
        "positions": torch.arange(16).repeat(rows, 1),
    }


compare(step, model, make)
