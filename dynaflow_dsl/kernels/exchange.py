"""Tokens to their experts and back, written straight into the memory of other ranks.

The counts stay on the device: nothing waits for the host, so a captured step takes
whatever routing comes. Rows go out in the order of experts, so what one rank sends to
another is one run of rows, and where it belongs follows from the table of counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dynaflow_dsl.kernels.peers import Peers, SharedBuffer
from dynaflow_dsl.kernels.reduction import block
from dynaflow_dsl.kernels.transports import peers_of
from dynaflow_dsl.runtime.kernels import kernel

_OPERATORS = torch.ops.dynaflow


def dispatched(
    tokens: torch.Tensor,
    experts: torch.Tensor,
    room: int,
    local: int,
    ranks: int,
    group: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Reference: `dynaflow_dsl.models.exchange.dispatch` of tokens [..., width]."""
    rows = tokens.view(-1, tokens.shape[-1])
    made: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _OPERATORS.dispatch(
        rows, experts, room, local, ranks, group
    )
    return made


@kernel(reference=dispatched, mutates=(), communicator="ep", uses=("push_dispatch",))
def push_dispatch(
    tokens: torch.Tensor,
    experts: torch.Tensor,
    room: int,
    local: int,
    ranks: int,
    group: str,
    programs: int = 16,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`dispatch` by stores into the receivers' memory, from `programs` SMs at most.

    More tokens than a rank has room for stop the program on the device.
    """
    peers = peers_of(group, tokens)
    if peers is None:
        return dispatched(tokens, experts, room, local, ranks, group)
    outgoing = sort_by_expert(experts, local * ranks)
    table = tell_counts(peers, "dispatch_counts", outgoing.counts)
    by_rank = table.view(ranks, ranks, local)  # sender, receiver, expert
    arriving = by_rank.sum(2)  # sender, receiver
    torch._assert_async(
        (arriving.sum(0) <= room).all(), "a rank has no room for its experts' tokens"
    )
    rows = tokens.reshape(-1, tokens.shape[-1])
    buffer = push(peers, "dispatched", rows, outgoing, arriving, room, programs)
    return receive(peers, buffer, by_rank[:, peers.rank], room, programs)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What a rank sends: row `order[k] // choices` of its rows is the k-th to go out.

    `counts` says how many go to each expert, or each rank.
    """

    order: torch.Tensor
    counts: torch.Tensor
    choices: int


def sort_by_expert(experts: torch.Tensor, count: int) -> Outgoing:
    """The choices, int64 [tokens, choices], in the order of experts and of tokens."""
    chosen = experts.reshape(-1)
    order = chosen.argsort(stable=True)
    # Not bincount: it asks the device for the largest number.
    counts = chosen.new_zeros(count).scatter_add_(0, chosen, torch.ones_like(chosen))
    return Outgoing(order, counts, experts.shape[1])


def tell_counts(peers: Peers, name: str, counts: torch.Tensor) -> torch.Tensor:
    """The counts of all ranks, [ranks, *counts.shape]."""
    table = peers.buffer(name, (peers.size, *counts.shape), counts.dtype)
    peers.barrier(name)  # the counts of the last call have been read
    for rank in range(peers.size):
        table.of_rank[rank][peers.rank].copy_(counts, non_blocking=True)
    peers.barrier(name)
    return table.of_rank[peers.rank].clone()


def push(
    peers: Peers,
    name: str,
    rows: torch.Tensor,
    outgoing: Outgoing,
    arriving: torch.Tensor,
    room: int,
    programs: int,
) -> SharedBuffer:
    """Write this rank's rows into the receivers' buffers; returns these.

    `arriving` is [sender, receiver], how many rows go from one to the other.
    """
    from dynaflow_dsl.kernels import launches

    width = rows.shape[1]
    ends = arriving[peers.rank].cumsum(0)
    starts = ends - arriving[peers.rank]
    before = arriving[: peers.rank].sum(0)  # rows that earlier senders put there
    buffer = peers.buffer(name, (room, width), rows.dtype)
    peers.barrier(name)  # the rows of the last call have been read
    launches.push_rows[(programs,)](
        rows.contiguous(),
        outgoing.order,
        buffer.addresses,
        ends,
        before - starts,
        width,
        DIVISOR=outgoing.choices,
        RANKS=peers.size,
        BLOCK=block(width),
    )
    peers.barrier(name)
    return buffer


def receive(
    peers: Peers,
    buffer: SharedBuffer,
    mine: torch.Tensor,
    room: int,
    programs: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `dispatch` returns; `mine` is [sender, expert], the counts of this rank."""
    from dynaflow_dsl.kernels import launches

    ranks, local = mine.shape
    arrived = mine.sum(1)
    there = buffer.of_rank[peers.rank]
    received = torch.empty_like(there)
    width = there.shape[1]
    launches.take_arrived[(min(programs, room),)](
        there, arrived.sum(), received, room, width, BLOCK=block(width)
    )
    # The run that row k lies in, of those of all senders and experts, in order.
    ends = mine.reshape(-1).cumsum(0)
    row = torch.arange(room, device=mine.device)
    run = torch.searchsorted(ends, row, right=True)
    numbers = torch.where(run < ranks * local, run % local, local)
    return received, numbers, arrived


def combined(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    arrived: torch.Tensor,
    residual: torch.Tensor,
    local: int,
    ranks: int,
    group: str,
) -> torch.Tensor:
    """Reference: `dynaflow_dsl.models.exchange.combine`, added to the residual.

    `residual`, [..., width], has a row for each token.
    """
    made: torch.Tensor = _OPERATORS.combine(
        rows, experts, weights, arrived, local, ranks, group
    )
    return residual + made.view(residual.shape)


@kernel(reference=combined, mutates=(), communicator="ep", uses=("push_combine",))
def push_combine(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    arrived: torch.Tensor,
    residual: torch.Tensor,
    local: int,
    ranks: int,
    group: str,
    programs: int = 16,
) -> torch.Tensor:
    """`combine` by stores into the senders' memory, who add up what they find there.

    The sum over choices and the addition to the residual are one kernel. A residual of
    another dtype goes by the reference.
    """
    peers = peers_of(group, rows)
    if peers is None or rows.dtype != residual.dtype:
        return combined(rows, experts, weights, arrived, residual, local, ranks, group)
    home = sort_by_expert(experts, local * ranks)
    table = tell_counts(peers, "combine_counts", arrived)  # receiver, sender
    back = Outgoing(torch.arange(rows.shape[0], device=rows.device), arrived, 1)
    room = experts.numel()
    buffer = push(peers, "combined", rows, back, table, room, programs)
    return add_up(peers, buffer, home, experts, weights, residual, programs)


def add_up(
    peers: Peers,
    buffer: SharedBuffer,
    home: Outgoing,
    experts: torch.Tensor,
    weights: torch.Tensor,
    residual: torch.Tensor,
    programs: int,
) -> torch.Tensor:
    """`residual` and the weighted sums of the results that came back."""
    from dynaflow_dsl.kernels import launches

    returned = buffer.of_rank[peers.rank]
    tokens, choices = experts.shape
    width = returned.shape[1]
    places = torch.empty_like(home.order)
    places[home.order] = torch.arange(home.order.numel(), device=places.device)
    summed = returned.new_empty(residual.shape)
    wide = torch.promote_types(returned.dtype, weights.dtype)
    launches.add_weighted[(min(programs, tokens),)](
        returned,
        places,
        weights.contiguous(),
        residual.contiguous(),
        summed,
        tokens,
        width,
        CHOICES=choices,
        NARROW=wide == returned.dtype,
        BLOCK=block(width),
    )
    return summed
