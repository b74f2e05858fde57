"""Kernels in plain PyTorch, and references that are right and wrong."""

from __future__ import annotations

from typing import Any

import torch

from dynaflow_dsl.runtime import kernel


def add_norm(
    residual: torch.Tensor, update: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Residual addition and RMS norm, as Hugging Face's Llama writes them."""
    hidden = residual + update
    variance = hidden.pow(2).mean(-1, keepdim=True)
    return hidden, weight * (hidden * torch.rsqrt(variance + eps))


@kernel(reference=add_norm, mutates=())
def fused(
    residual: torch.Tensor,
    update: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    lanes: int = 1,
) -> Any:
    hidden = residual.double() + update.double()
    scale = torch.rsqrt(hidden.square().mean(-1, keepdim=True) + eps)
    # Another order of results would be another kernel.
    normed = weight * (hidden * scale)
    return hidden.to(residual.dtype), normed.to(residual.dtype)
