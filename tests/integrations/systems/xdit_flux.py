"""xDiT's Flux transformer on one rank.

xDiT asks for the version of an accelerator when it is imported. A machine of Apple's
has no version, and for that moment this one is one.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch
from comparing import HERE, PARTS, compare, fill, prepare

with patch.object(torch.backends.mps, "is_available", lambda: True):
    import xfuser.envs

from xfuser.core.distributed import (
    get_runtime_state,
    init_distributed_environment,
    initialize_model_parallel,
    initialize_runtime_state,
)
from xfuser.core.distributed.attention_backend import AttentionBackendType
from xfuser.model_executor.models.transformers.transformer_flux import (
    xFuserFlux1Transformer2DWrapper,
)

IMAGE, TEXT = 16, 8

assert xfuser.envs.get_device_name() == "cpu"
prepare()
init_distributed_environment(rank=0, world_size=1, local_rank=0, backend="gloo")
initialize_model_parallel(backend="gloo")
initialize_runtime_state()
get_runtime_state().set_attention_backend(AttentionBackendType.SDPA)
get_runtime_state().max_condition_sequence_length = TEXT
model = fill(
    xFuserFlux1Transformer2DWrapper(
        in_channels=16,
        num_layers=3,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )
)

# What a user adds:
step = torch.compile(
    model,
    backend="dynaflow",
    options={
        "schedule": str(HERE / "xdit_halves.dfs"),
        "dims": {
            "hidden_states": ("batch", None, None),
            "encoder_hidden_states": ("batch", None, None),
            "pooled_projections": ("batch", None),
            "timestep": ("batch",),
        },
        **PARTS,
    },
)
# So much.


def make(rows: int) -> dict[str, Any]:
    """Noise, texts and a time for each row."""
    return {
        "hidden_states": torch.randn(rows, IMAGE, 16),
        "encoder_hidden_states": torch.randn(rows, TEXT, 32),
        "pooled_projections": torch.randn(rows, 32),
        "timestep": torch.rand(rows),
        "img_ids": torch.zeros(IMAGE, 3),
        "txt_ids": torch.zeros(TEXT, 3),
        "return_dict": False,
    }


compare(step, model, make)
torch.distributed.destroy_process_group()
