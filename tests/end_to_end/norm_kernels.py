"""Kernels in plain PyTorch, with references that are right and wrong."""

from __future__ import annotations

import torch

from dynaflow_dsl.runtime import kernel

Pair = tuple[torch.Tensor, torch.Tensor]


def add_norm(
    residual: torch.Tensor, update: torch.Tensor, weight: torch.Tensor, eps: float
) -> Pair:
    """Residual addition and RMS norm, as Hugging Face's Llama writes them."""
    hidden = residual + update
    variance = hidden.pow(2).mean(-1, keepdim=True)
    return hidden, weight * (hidden * torch.rsqrt(variance + eps))


def norm_first(
    weight: torch.Tensor, update: torch.Tensor, residual: torch.Tensor, eps: float = 1.0
) -> Pair:
    """The same in other orders: arguments, operands and results."""
    hidden = update + residual
    variance = hidden.pow(2).mean(-1, keepdim=True)
    return (torch.rsqrt(variance + eps) * hidden) * weight, hidden


def mean_norm(
    residual: torch.Tensor, update: torch.Tensor, weight: torch.Tensor, eps: float
) -> Pair:
    """Not what the model computes: the variance of something else."""
    hidden = residual + update
    variance = hidden.abs().mean(-1, keepdim=True)
    return hidden, weight * (hidden * torch.rsqrt(variance + eps))


def writing_norm(
    residual: torch.Tensor, update: torch.Tensor, weight: torch.Tensor, eps: float
) -> Pair:
    """Writes an argument, which the model does not."""
    hidden = residual.add_(update)
    variance = hidden.pow(2).mean(-1, keepdim=True)
    return hidden, weight * (hidden * torch.rsqrt(variance + eps))


def _norm(
    residual: torch.Tensor, update: torch.Tensor, weight: torch.Tensor, eps: float
) -> Pair:
    """In double precision, so that the results are not bit for bit the text's."""
    hidden = residual.double() + update.double()
    scale = torch.rsqrt(hidden.square().mean(-1, keepdim=True) + eps)
    normed = weight * (hidden * scale)
    return hidden.to(residual.dtype), normed.to(residual.dtype)


@kernel(reference=add_norm, mutates=())
def fused(
    residual: torch.Tensor,
    update: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    lanes: int = 1,
) -> Pair:
    assert lanes == 4
    return _norm(residual, update, weight, eps)


@kernel(reference=norm_first, mutates=())
def turned(
    weight: torch.Tensor, update: torch.Tensor, residual: torch.Tensor, eps: float
) -> Pair:
    hidden, normed = _norm(residual, update, weight, eps)
    return normed, hidden


undeclared = kernel(reference=add_norm)(_norm)
other_variance = kernel(reference=mean_norm, mutates=())(_norm)
reference_writes = kernel(reference=writing_norm, mutates=("residual",))(_norm)
says_it_writes = kernel(reference=add_norm, mutates=("residual",))(_norm)
names_nothing = kernel(reference=add_norm, mutates=("resid",))(_norm)


@kernel(reference=add_norm, mutates=())
def no_eps(residual: torch.Tensor, update: torch.Tensor, weight: torch.Tensor) -> Pair:
    return _norm(residual, update, weight, 1e-6)


@kernel(reference=add_norm, mutates=())
def wrong(
    residual: torch.Tensor, update: torch.Tensor, weight: torch.Tensor, eps: float
) -> Pair:
    """Not what its reference is: numbers show it, text does not."""
    hidden, normed = _norm(residual, update, weight, eps)
    return hidden, normed * 1.01


@kernel(reference=add_norm, mutates=())
def aliasing(
    residual: torch.Tensor, update: torch.Tensor, weight: torch.Tensor, eps: float
) -> Pair:
    """Gives the memory of an argument away."""
    _, normed = _norm(residual, update, weight, eps)
    return residual.add_(update), normed


@kernel(reference=add_norm, mutates=())
def on_devices(
    residual: torch.Tensor, update: torch.Tensor, weight: torch.Tensor, eps: float
) -> Pair:
    """Of which nothing runs on a CPU."""
    assert residual.device.type == "cpu"
    return add_norm(residual, update, weight, eps)


@kernel(reference=add_norm, mutates=())
def of_two_rows(
    residual: torch.Tensor, update: torch.Tensor, weight: torch.Tensor, eps: float
) -> Pair:
    """Takes two rows; others go by the reference, which it may also ask for parts."""
    if residual.shape[0] != 2:
        return add_norm(residual, update, weight, eps)
    one, two = (add_norm(residual[k], update[k], weight, eps) for k in range(2))
    return torch.stack([one[0], two[0]]), torch.stack([one[1], two[1]])


def plain(residual: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    """No kernel."""
    return residual + update


@kernel(mutates=())
def by_name(
    hidden: torch.Tensor,
    attn: torch.Tensor,
    post_attention_layernorm: torch.Tensor,
    eps: float = 1e-6,
) -> Pair:
    """Without a reference: its tensors are those of the part, by name."""
    return _norm(hidden, attn, post_attention_layernorm, eps)


@kernel(mutates=())
def by_name_wrong(
    hidden: torch.Tensor, attn: torch.Tensor, post_attention_layernorm: torch.Tensor
) -> Pair:
    """Another number than the model's."""
    return _norm(hidden, attn, post_attention_layernorm, 0.1)


@kernel(mutates=("hidden",))
def by_name_writing(
    hidden: torch.Tensor, attn: torch.Tensor, post_attention_layernorm: torch.Tensor
) -> Pair:
    hidden.add_(attn)
    return _norm(hidden, attn * 0, post_attention_layernorm, 1e-6)


@kernel(mutates=())
def by_other_name(
    hidden: torch.Tensor, attention: torch.Tensor, weight: torch.Tensor
) -> Pair:
    return _norm(hidden, attention, weight, 1e-6)
