"""Functional collectives of a model whose tensors lie on several ranks.

They name a role (`"tp"`) where torch names a process group, so that every rank traces
the same text; `dynaflow_dsl.runtime.bind_group` says which group plays it. Tracing
needs no process group at all: the operators' shapes follow from their arguments.
"""

from __future__ import annotations

import torch

from dynaflow_dsl.runtime.groups import group_rank, is_stand_in

TENSOR, EXPERT = "tp", "ep"
"""The roles: of ranks that share layers, and of those that share experts."""

_OPERATORS = torch.ops._c10d_functional


def all_reduce(tensor: torch.Tensor, role: str) -> torch.Tensor:
    """The sum over the ranks of `role`, of any shape."""
    started = _OPERATORS.all_reduce(tensor, "sum", role)
    summed: torch.Tensor = _OPERATORS.wait_tensor(started)
    return summed


def all_gather_last(tensor: torch.Tensor, ranks: int, role: str) -> torch.Tensor:
    """The ranks' tensors [..., n] side by side along the last axis, [..., ranks * n].

    The operator puts them one after the other along the first axis; one copy brings
    them where they belong.
    """
    started = _OPERATORS.all_gather_into_tensor(tensor.contiguous(), ranks, role)
    gathered = _OPERATORS.wait_tensor(started).view(ranks, *tensor.shape)
    joined: torch.Tensor = gathered.movedim(0, -2).flatten(-2)
    return joined


def all_gather_first(tensor: torch.Tensor, ranks: int, role: str) -> torch.Tensor:
    """The ranks' tensors [n, ...] one after the other, [ranks * n, ...]."""
    if is_stand_in(role):
        gathered = tensor.new_zeros(ranks, *tensor.shape)
        gathered[group_rank(role)] = tensor
        return gathered.flatten(0, 1)
    started = _OPERATORS.all_gather_into_tensor(tensor, ranks, role)
    waited: torch.Tensor = _OPERATORS.wait_tensor(started)
    return waited


def all_to_all(
    tensor: torch.Tensor, arriving: list[int], leaving: list[int], role: str
) -> torch.Tensor:
    """Rows [sum of leaving, ...], in the order of the ranks they go to, exchanged.

    Returns [sum of arriving, ...], in the order of the ranks they come from.
    """
    if is_stand_in(role):
        rank = group_rank(role)
        exchanged = tensor.new_zeros(sum(arriving), *tensor.shape[1:])
        there, here = sum(arriving[:rank]), sum(leaving[:rank])
        kept = tensor[here : here + leaving[rank]]
        exchanged[there : there + arriving[rank]] = kept
        return exchanged
    started = _OPERATORS.all_to_all_single(tensor, arriving, leaving, role)
    waited: torch.Tensor = _OPERATORS.wait_tensor(started)
    return waited
