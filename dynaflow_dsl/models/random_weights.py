"""Models of any shape with random weights."""

from __future__ import annotations

import torch
from transformers import PreTrainedConfig, PreTrainedModel


def random_model(
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
) -> PreTrainedModel:
    """A model with random weights in evaluation mode, always the same for a seed.

    With `meta` it has shapes and no memory. Experts run as a batched product with the
    weights that each token chose: rows then do not meet in a sort. Raises ValueError
    for an unknown dtype.
    """
    kind = dtype_named(dtype)
    options = {"experts_implementation": "batched_mm"}
    if not model_class._can_set_experts_implementation():
        options = {}
    with torch.random.fork_rng(), torch.device("meta" if meta else device):
        torch.manual_seed(seed)
        model: PreTrainedModel = model_class._from_config(
            config,
            dtype=kind,
            attn_implementation="sdpa" if model_class._supports_sdpa else "eager",
            **options,
        )
    return model.eval().requires_grad_(False)


def dtype_named(name: str) -> torch.dtype:
    """The dtype of a name; raises ValueError where torch has none of it."""
    kind = getattr(torch, name, None)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"dtype is {name!r}, which is none of torch's")
    return kind
