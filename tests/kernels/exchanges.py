"""Exchanges between experts to compare: routings, and the reference's collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dynaflow_dsl.kernels.combining import (
    push_combine,
    push_combine_add,
    reduce_combine,
    reduce_combine_add,
)
from dynaflow_dsl.kernels.exchange import gather_dispatch, push_dispatch
from dynaflow_dsl.models import exchange
from tests.kernels.ranks import Rank, World

LOCAL, CHOICES = 3, 2

WAYS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "push": (push_dispatch, push_combine),
    "push and add": (push_dispatch, push_combine_add),
    "gather": (gather_dispatch, reduce_combine),
    "gather and add": (gather_dispatch, reduce_combine_add),
}


def routed(ranks: int, tokens: int, how: str, device: str = "cpu") -> torch.Tensor:
    """The experts of each rank's tokens, [ranks, tokens, choices]."""
    scores = torch.rand(ranks, tokens, ranks * LOCAL, device=device)
    match how:
        case "one rank has no tokens for it":
            scores[0, :, -LOCAL:] = -1
        case "no tokens for the last rank":
            scores[..., -LOCAL:] = -1
        case "all to the last two experts":
            scores = torch.arange(ranks * LOCAL, device=device).expand_as(scores)
    experts = scores.topk(CHOICES).indices
    if how == "an expert chosen twice":
        experts[:, ::2] = experts[:, ::2, :1]
    return experts


def exact_room(experts: torch.Tensor) -> int:
    """The room that the rank with the most rows fills to the last."""
    return int(torch.bincount(experts.flatten() // LOCAL).max())


def exchanged(
    send: Callable[..., Any],
    bring: Callable[..., Any] | None,
    rank: int,
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    residual: torch.Tensor,
    room: int,
    **options: int,
) -> list[torch.Tensor]:
    """What dispatch gives, and then combine, on one rank; the tensors are of all.

    Without `bring`, `send` is the reference of dispatch and combine its own.
    """
    ranks, role = experts.shape[0], f"ep{rank}"
    sent = send(rows[rank], experts[rank], room, LOCAL, ranks, role, **options)
    row = torch.arange(room, dtype=torch.int32, device=rows.device)
    number = torch.searchsorted(sent[1], row, right=True)
    results = (sent[0] * (1 + number[:, None])).to(rows.dtype)
    given = (results, experts[rank], weights[rank], sent[2])
    if bring in (push_combine_add, reduce_combine_add):
        back = bring(*given, residual[rank], LOCAL, ranks, role, **options)
    else:
        combine = exchange.combine._init_fn if bring is None else bring
        made = combine(*given, LOCAL, ranks, role, **options)
        back = residual[rank] + made.view(residual[rank].shape)
    return [*sent, back]


def collectives(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's collectives over the same ranks: what is not under test."""

    def gathered(tensor: torch.Tensor, ranks: int, role: str) -> torch.Tensor:
        rank = Rank(world, int(role[2:]))
        table = rank.buffer("gathered", (ranks, *tensor.shape), tensor.dtype)
        rank.barrier("gathered")
        for one in table.of_rank:
            one[rank.rank] = tensor
        rank.barrier("gathered")
        return table.of_rank[rank.rank].flatten(0, 1).clone()

    waiting: dict[tuple[int, int], torch.Tensor] = {}

    def swapped(
        tensor: torch.Tensor, arriving: list[int], leaving: list[int], role: str
    ) -> torch.Tensor:
        rank = Rank(world, int(role[2:]))
        rank.buffer("exchanged", (1,), torch.int64)
        rank.barrier("exchanged")
        for target, rows in enumerate(tensor.split(leaving)):
            waiting[rank.rank, target] = rows
        rank.barrier("exchanged")
        came = [waiting[source, rank.rank] for source in range(rank.size)]
        assert [one.shape[0] for one in came] == arriving
        return torch.cat(came)

    monkeypatch.setattr(exchange, "all_gather_first", gathered)
    monkeypatch.setattr(exchange, "all_to_all", swapped)
    monkeypatch.setattr(exchange, "group_rank", lambda role: int(role[2:]))
