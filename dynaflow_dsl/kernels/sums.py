"""Sums of what ranks gave, and what a model does with them at once.

One or two addends, which are the sum over the ranks in their order. Results are rounded
where those of the model are: after the reduction, and after each operation behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dynaflow_dsl.kernels.tiles import Tile, power_of_two

# What Triton adds in float32 without losing anything of.
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)

_PROGRAMS = 264


def total(addends: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum, a tensor of its own."""
    if len(addends) == 1:
        return addends[0].clone()
    return torch.add(*addends)


def added(addends: Sequence[torch.Tensor], residual: torch.Tensor) -> torch.Tensor:
    """The residual and the sum, which has as many numbers; like the residual."""
    if not _is_fused(addends, residual):
        return residual + total(addends).view(residual.shape)
    return add_residual(addends, residual)


def normed(
    addends: Sequence[torch.Tensor],
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`added`, and its RMS norm; `weight` is [width], the residual [..., width]."""
    if not _is_fused(addends, residual, weight):
        return norm(residual + total(addends).view(residual.shape), weight, eps)
    return add_residual_and_norm(addends, residual, weight, eps)


def norm(
    hidden: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor [..., width] and its RMS norm, computed as models of Llama's kind do."""
    wide = hidden.to(torch.float32)
    variance = wide.pow(2).mean(-1, keepdim=True)
    unit = wide * torch.rsqrt(variance + eps)
    return hidden, weight * unit.to(hidden.dtype)


def _is_fused(addends: Sequence[torch.Tensor], *given: torch.Tensor) -> bool:
    """Whether one kernel does it: on a GPU, with floats of one dtype."""
    kinds = {one.dtype for one in (*addends, *given)}
    one = given[0]
    return one.is_cuda and len(kinds) == 1 and one.dtype in _FLOATS and one.numel() > 0


def add_residual(
    addends: Sequence[torch.Tensor], residual: torch.Tensor
) -> torch.Tensor:
    """`added` by one Triton kernel."""
    from dynaflow_dsl.kernels import launches

    before = residual.contiguous()
    hidden = torch.empty_like(before)
    count, block = before.numel(), 4096
    launches.add_to_residual[(min(_PROGRAMS, -(-count // block)),)](
        addends[0],
        addends[-1],
        before,
        hidden,
        count,
        TWO=len(addends) == 2,
        BLOCK=block,
    )
    return hidden


def add_residual_and_norm(
    addends: Sequence[torch.Tensor],
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`normed` by one Triton kernel."""
    from dynaflow_dsl.kernels import launches

    before = residual.contiguous()
    width = before.shape[-1]
    rows = before.numel() // width
    hidden, unit = torch.empty_like(before), torch.empty_like(before)
    launches.add_to_residual_and_norm[(min(_PROGRAMS, rows),)](
        addends[0],
        addends[-1],
        before,
        weight,
        hidden,
        unit,
        rows,
        width,
        eps,
        TWO=len(addends) == 2,
        BLOCK=power_of_two(width),
        num_warps=Tile.of(width, before.itemsize).warps,
    )
    return hidden, unit
