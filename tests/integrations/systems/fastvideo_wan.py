"""FastVideo's transformer of Wan on one rank.

What it imports for files of images and videos was built for other versions of torch:
these packages are there in name only. Its platform for CPUs chooses no attention; the
one that is chosen here is FastVideo's for Apple's machines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
from comparing import HERE, PARTS, compare, fill, prepare

# They look for the packages that are missing, and are to find that they are.
from transformers import CLIPModel, PreTrainedModel

assert CLIPModel is not None
assert PreTrainedModel is not None


class Absent:
    """Finds packages that are not there."""

    NAMES = ("av", "cv2", "moviepy", "torchaudio", "torchcodec", "torchvision")

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        """A package, for names below one of them."""
        missing = name.partition(".")[0] in self.NAMES
        return ModuleSpec(name, self, is_package=True) if missing else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """What has every name that is imported from it."""
        made: Any = MagicMock(name=spec.name)
        made.__spec__, made.__name__, made.__path__ = spec, spec.name, []
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Nothing."""


SDPA = "fastvideo.attention.backends.sdpa.SDPABackend"


def tiny_model() -> torch.nn.Module:
    """A small Wan with random weights, and the groups of ranks that it asks for."""
    # transformers looks for packages that are missing, and is to find that they are.
    from transformers import CLIPModel, PreTrainedModel

    assert CLIPModel is not None
    assert PreTrainedModel is not None
    sys.meta_path.insert(0, Absent())
    from fastvideo.configs.models.dits.wanvideo import (
        WanVideoArchConfig,
        WanVideoConfig,
    )
    from fastvideo.distributed.parallel_state import (
        maybe_init_distributed_environment_and_model_parallel,
    )
    from fastvideo.models.dits.wanvideo import WanTransformer3DModel
    from fastvideo.platforms.cpu import CpuPlatform

    CpuPlatform.get_attn_backend_cls = lambda *given, **named: SDPA
    prepare()
    maybe_init_distributed_environment_and_model_parallel(1, 1)
    sizes = WanVideoArchConfig(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        out_channels=4,
        text_dim=32,
        freq_dim=32,
        ffn_dim=64,
        num_layers=3,
    )
    return fill(WanTransformer3DModel(WanVideoConfig(arch_config=sizes), hf_config={}))


def make(rows: int) -> dict[str, Any]:
    """Noise, texts and a time for each row."""
    return {
        "hidden_states": torch.randn(rows, 4, 2, 8, 8),
        "encoder_hidden_states": torch.randn(rows, 8, 32),
        "timestep": torch.randint(0, 1000, (rows,)),
    }


os.environ["FASTVIDEO_ATTENTION_BACKEND"] = "TORCH_SDPA"

# What a user adds, before the model is made:
os.environ["FASTVIDEO_DISABLE_ATTENTION_COMPILE"] = "0"
# So much.

model = tiny_model()

# What a user adds:
step = torch.compile(
    model,
    backend="dynaflow",
    options={
        "schedule": str(HERE / "fastvideo_halves.dfs"),
        "dims": {
            "hidden_states": ("batch", None, None, None, None),
            "encoder_hidden_states": ("batch", None, None),
            "timestep": ("batch",),
        },
        **PARTS,
    },
)
# So much.

from_context = sys.modules["fastvideo.forward_context"].set_forward_context
with from_context(current_timestep=0, attn_metadata=None):
    compare(step, model, make)
torch.distributed.destroy_process_group()
