"""Operators that bring tokens to the ranks of their experts, and results back.

Which rank gets how many tokens is known only when a step runs. So that the graph has
sizes which follow from its inputs', the tokens that a rank receives stand in a tensor
with room for the worst case; rows past the last one are zeros and belong to no expert.
Both are functional; each is one operation of the graph, with its communication inside.
"""

from __future__ import annotations

import torch

from dynaflow_dsl.models.collectives import all_gather_first, all_to_all
from dynaflow_dsl.runtime.groups import group_rank, is_stand_in


@torch.library.custom_op("dynaflow::dispatch", mutates_args=())
def dispatch(
    tokens: torch.Tensor,
    experts: torch.Tensor,
    room: int,
    local: int,
    ranks: int,
    role: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Send every token to the ranks of its experts.

    `tokens` is [tokens, width] and `experts` int64 [tokens, choices], numbers of
    experts of which each rank holds `local`, in order. Returns the rows received,
    [room, width], int64 [room] numbers of this rank's experts (`local` past the last
    row), and int64 [ranks] how many rows each rank sent. Rows of one rank are in the
    order of experts, and in the order of tokens for each.

    All ranks raise RuntimeError when one of them would receive more than its `room`.
    """
    choices = experts.shape[1]
    chosen = experts.reshape(-1)
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=ranks * local)
    given = torch.cat([counts, counts.new_tensor([room])])
    table = all_gather_first(given[None], ranks, role) if ranks > 1 else given[None]
    by_rank = table[:, :-1].view(ranks, ranks, local)  # sender, receiver, expert
    rank = group_rank(role) if ranks > 1 else 0
    needed, rooms = by_rank.sum((0, 2)).tolist(), table[:, -1].tolist()
    # Of ranks that are not there, nothing is known.
    for receiver in [rank] if is_stand_in(role) else range(ranks):
        _check_room(receiver, needed[receiver], rooms[receiver])
    mine = by_rank[:, rank]
    arrived = mine.sum(1)
    sent = counts.view(ranks, local).sum(1)
    outgoing = tokens[order // choices]
    if ranks > 1:
        outgoing = all_to_all(outgoing, arrived.tolist(), sent.tolist(), role)
    rows = outgoing.shape[0]
    received = tokens.new_zeros(room, tokens.shape[1])
    received[:rows] = outgoing
    numbers = experts.new_full((room,), local)
    each = torch.arange(local, device=experts.device).repeat(ranks)
    numbers[:rows] = each.repeat_interleave(mine.reshape(-1))
    return received, numbers, arrived


@dispatch.register_fake
def _(
    tokens: torch.Tensor,
    experts: torch.Tensor,
    room: int,
    local: int,
    ranks: int,
    role: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    received = tokens.new_empty(room, tokens.shape[1])
    return received, experts.new_empty(room), experts.new_empty(ranks)


@torch.library.custom_op("dynaflow::combine", mutates_args=())
def combine(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    arrived: torch.Tensor,
    local: int,
    ranks: int,
    role: str,
) -> torch.Tensor:
    """Send results back to where their tokens came from, and add them up.

    `rows` is [room, width], what the experts made of what `dispatch` returned;
    `experts` and `weights` are [tokens, choices], `arrived` is what `dispatch` said.
    Returns [tokens, width]: for each token the sum, in the order of its choices, of
    its results times their weights, in the wider dtype of both, cast to that of `rows`.
    """
    chosen = experts.reshape(-1)
    order = chosen.argsort(stable=True)
    sent = torch.bincount(chosen, minlength=ranks * local).view(ranks, local).sum(1)
    counts = arrived.tolist()
    returned = rows[: sum(counts)]
    if ranks > 1:
        returned = all_to_all(returned, sent.tolist(), counts, role)
    results = torch.empty_like(returned)
    results[order] = returned
    weighted = results.view(*experts.shape, rows.shape[1]) * weights[..., None]
    return weighted.sum(1).to(rows.dtype)


@combine.register_fake
def _(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    arrived: torch.Tensor,
    local: int,
    ranks: int,
    role: str,
) -> torch.Tensor:
    return rows.new_empty(experts.shape[0], rows.shape[1])


def _check_room(rank: int, needed: int, room: int) -> None:
    """Refuse more rows than a rank has room for; all ranks check all and stop alike."""
    if needed > room:
        raise RuntimeError(
            f"rank {rank} would receive {needed} tokens for its experts and has room "
            f"for {room}: give the target a larger 'room'"
        )
