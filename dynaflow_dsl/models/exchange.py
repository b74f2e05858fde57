"""Operators that bring tokens to the ranks of their experts, and results back.

Which rank gets how many tokens is known only when a step runs. So that the graph has
sizes which follow from its inputs', the tokens that a rank receives stand in a tensor
with room for the worst case; rows past the last one are zeros and belong to no expert.
They stand by experts, so that a grouped matrix product takes them as they are.
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
    [room, width], int32 [local] behind which row those of each of this rank's experts
    end, and int64 [ranks, local] how many rows each rank sent for each. Rows are in the
    order of experts, of the ranks that sent them for each, and of tokens for those.

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
    arrived = by_rank[:, rank].contiguous()
    outgoing = tokens[order // choices]
    if ranks > 1:
        sent = counts.view(ranks, local).sum(1).tolist()
        outgoing = all_to_all(outgoing, arrived.sum(1).tolist(), sent, role)
    received = tokens.new_zeros(room, tokens.shape[1])
    rows = outgoing.shape[0]
    received[:rows] = outgoing[_by_expert(arrived, rows)]
    return received, arrived.sum(0).cumsum(0, dtype=torch.int32), arrived


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
    ends = experts.new_empty(local, dtype=torch.int32)
    return received, ends, experts.new_empty(ranks, local)


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

    `rows` is [room, width], what the experts made of what `dispatch` returned, with
    anything in rows past the last that arrived; `experts` and `weights` are [tokens,
    choices], `arrived` is what `dispatch` said. Returns [tokens, width]: for each token
    the sum, in the order of its choices, of its results times their weights, in the
    wider dtype of both, cast to that of `rows`.
    """
    chosen = experts.reshape(-1)
    order = chosen.argsort(stable=True)
    sent = torch.bincount(chosen, minlength=ranks * local).view(ranks, local).sum(1)
    counts = arrived.sum(1).tolist()
    returned = rows.new_empty(sum(counts), rows.shape[1])
    returned[_by_expert(arrived, sum(counts))] = rows[: sum(counts)]
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


def _by_expert(arrived: torch.Tensor, rows: int) -> torch.Tensor:
    """The order that puts rows of all senders by experts; each sender's are already."""
    ranks, local = arrived.shape
    numbers = torch.arange(local, device=arrived.device).repeat(ranks)
    # Told how many there are, it does not ask the device.
    each = numbers.repeat_interleave(arrived.reshape(-1), output_size=rows)
    return each.argsort(stable=True)


def _check_room(rank: int, needed: int, room: int) -> None:
    """Refuse more rows than a rank has room for; all ranks check all and stop alike."""
    if needed > room:
        raise RuntimeError(
            f"rank {rank} would receive {needed} tokens for its experts and has room "
            f"for {room}: give the target a larger 'room'"
        )
