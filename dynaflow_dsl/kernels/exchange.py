"""Tokens to their experts and back, through memory that all ranks reach.

Every rank is told all ranks' choices, so each finds by itself which tokens are for its
experts and where they stand. A token goes to a rank once, however many experts it has
there, and comes back as one sum. `gather_dispatch` and `reduce_combine` bring all rows
to all ranks by copy engine; `push_dispatch` and `push_combine` store only those that
are wanted, from SMs. Where GPUs do not reach each other's memory, both kinds bring all
rows to all ranks through that of the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dynaflow_dsl.kernels.host import HostPeers
from dynaflow_dsl.kernels.peers import (
    Peers,
    SharedBuffer,
    copy_to_all,
    copy_to_others,
    others,
)
from dynaflow_dsl.kernels.routing import Places, find_places
from dynaflow_dsl.kernels.tiles import Tile, aligned, power_of_two
from dynaflow_dsl.kernels.transports import transport_of
from dynaflow_dsl.runtime.kernels import kernel

_OPERATORS = torch.ops.dynaflow

# Sums of several rows are kept in float32 while a tile is under way.
_SUM_TILE = 16 * 1024


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


@kernel(reference=dispatched, mutates=(), communicator="ep", uses=("exchange",))
def gather_dispatch(
    tokens: torch.Tensor,
    experts: torch.Tensor,
    room: int,
    local: int,
    ranks: int,
    group: str,
    programs: int = 32,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`dispatch` whose data goes by copy engine: all tokens to all ranks.

    For few ranks, where nearly every token has an expert on each of them. The rows that
    a rank wants are put in order by a grid of `programs`. More tokens than a rank has
    room for stop the program on the device.
    """
    peers = transport_of(group, tokens)
    if peers is None:
        return dispatched(tokens, experts, room, local, ranks, group)
    rows = tokens.reshape(-1, tokens.shape[-1]).contiguous()
    if isinstance(peers, HostPeers):
        return dispatch_by_host(peers, rows, experts, room, local, programs)
    sent, choices = _begin_dispatch(peers, rows, experts)
    copy_to_others(peers, sent, rows)
    return _end_dispatch(peers, rows, sent, choices, room, local, programs)


@kernel(reference=dispatched, mutates=(), communicator="ep", uses=("exchange",))
def push_dispatch(
    tokens: torch.Tensor,
    experts: torch.Tensor,
    room: int,
    local: int,
    ranks: int,
    group: str,
    programs: int = 32,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`dispatch` by stores into the memory of the ranks that want a token.

    For many ranks. `programs` is the size of the grids that move rows, here and into
    order there. More tokens than a rank has room for stop the program on the device.
    """
    from dynaflow_dsl.kernels import exchange_launches

    peers = transport_of(group, tokens)
    if peers is None:
        return dispatched(tokens, experts, room, local, ranks, group)
    rows = tokens.reshape(-1, tokens.shape[-1]).contiguous()
    if isinstance(peers, HostPeers):
        return dispatch_by_host(peers, rows, experts, room, local, programs)
    sent, choices = _begin_dispatch(peers, rows, experts)
    count, width = rows.shape
    tile = Tile.of(width, rows.itemsize)
    exchange_launches.push_tokens[(tile.programs(count, programs),)](
        rows,
        experts.contiguous(),
        sent.addresses,
        count,
        width,
        local,
        peers.rank,
        CHOICES=experts.shape[1],
        ALIGNED=aligned(width, rows.itemsize),
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
    return _end_dispatch(peers, rows, sent, choices, room, local, programs)


def _begin_dispatch(
    peers: Peers, rows: torch.Tensor, experts: torch.Tensor
) -> tuple[SharedBuffer, SharedBuffer]:
    """Where all ranks' tokens arrive, a share for each sender, and their choices.

    The choices are under way when it returns.
    """
    sent = peers.buffer("dispatched", (peers.size, *rows.shape), rows.dtype)
    shape = (peers.size, *experts.shape)
    choices = peers.buffer("dispatched_choices", shape, experts.dtype)
    peers.barrier("dispatched")  # what came for the last call has been read
    copy_to_all(peers, choices, experts)
    return sent, choices


def _end_dispatch(
    peers: Peers,
    rows: torch.Tensor,
    sent: SharedBuffer,
    choices: SharedBuffer,
    room: int,
    local: int,
    programs: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    peers.barrier("dispatched")
    places = find_places(choices.of_rank[peers.rank], local, peers.rank)
    return receive(rows, sent.of_rank[peers.rank], places, room, programs)


def dispatch_by_host(
    peers: HostPeers,
    rows: torch.Tensor,
    experts: torch.Tensor,
    room: int,
    local: int,
    programs: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`dispatch` of rows [tokens, width], where all come through the host."""
    places = find_places(_everyones(peers, experts), local, peers.rank)
    return receive(rows, _everyones(peers, rows), places, room, programs)


def _everyones(peers: HostPeers, tensor: torch.Tensor) -> torch.Tensor:
    """What all ranks have of this, [ranks, ...]."""
    gathered = peers.collectives.all_gather(tensor, 0)
    return gathered.view(peers.size, *tensor.shape)


def receive(
    own: torch.Tensor, sent: torch.Tensor, places: Places, room: int, programs: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `dispatch` returns.

    `own` are this rank's tokens, [tokens, width], and `sent` those of all others,
    [ranks, tokens, width].
    """
    from dynaflow_dsl.kernels import exchange_launches

    ranks, tokens, choices = places.experts.shape
    width = own.shape[1]
    received = own.new_empty(room, width)
    ends = places.experts.new_empty(places.local, dtype=torch.int32)
    arrived = places.experts.new_empty(ranks, places.local)
    fits = torch.empty((), dtype=torch.bool, device=own.device)
    tile = Tile.of(width, own.itemsize)
    exchange_launches.spread_rows[
        (tile.programs(max(ranks * tokens, room), programs),)
    ](
        own,
        sent,
        places.of_choice,
        places.sums,
        received,
        ends,
        arrived,
        fits,
        tokens,
        room,
        width,
        places.local,
        places.blocks,
        places.rank,
        RANKS=ranks,
        CHOICES=choices,
        EXPERTS=power_of_two(places.local),
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
    torch._assert_async(fits, "a rank has no room for its experts' tokens")
    return received, ends, arrived


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


@kernel(reference=combined, mutates=(), communicator="ep", uses=("exchange",))
def reduce_combine(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    arrived: torch.Tensor,
    residual: torch.Tensor,
    local: int,
    ranks: int,
    group: str,
    programs: int = 32,
) -> torch.Tensor:
    """`combine` whose sums over choices are made where the experts are.

    Each rank sends one sum for a token, rounded once to the dtype of `rows`, and by
    copy engine for all tokens; the sums of ranks and the residual are added by one
    kernel. `programs` is the size of the grids. A residual of another dtype goes by the
    reference.
    """
    peers = transport_of(group, rows)
    if peers is None or rows.dtype != residual.dtype:
        return combined(rows, experts, weights, arrived, residual, local, ranks, group)
    if isinstance(peers, HostPeers):
        return combine_by_host(peers, rows, experts, weights, residual, local, programs)
    results = Results.tell(peers, rows, experts, weights, local)
    partials = results.buffer(peers)
    sums = torch.empty_like(partials.of_rank[peers.rank])
    sum_for_others(results, sums, programs, push=False)
    for rank in others(peers.rank, peers.size):
        there = partials.of_rank[rank][peers.rank]
        there.copy_(sums[rank], non_blocking=True)
    peers.barrier("combined")
    return add_sums(results, partials.of_rank[peers.rank], residual, programs)


@kernel(reference=combined, mutates=(), communicator="ep", uses=("exchange",))
def push_combine(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    arrived: torch.Tensor,
    residual: torch.Tensor,
    local: int,
    ranks: int,
    group: str,
    programs: int = 32,
) -> torch.Tensor:
    """`reduce_combine` that stores its sums straight into the memory of their ranks.

    Only of tokens that chose an expert of this rank. A residual of another dtype goes
    by the reference.
    """
    peers = transport_of(group, rows)
    if peers is None or rows.dtype != residual.dtype:
        return combined(rows, experts, weights, arrived, residual, local, ranks, group)
    if isinstance(peers, HostPeers):
        return combine_by_host(peers, rows, experts, weights, residual, local, programs)
    results = Results.tell(peers, rows, experts, weights, local)
    partials = results.buffer(peers)
    sum_for_others(results, partials.addresses, programs, push=True)
    peers.barrier("combined")
    return add_sums(results, partials.of_rank[peers.rank], residual, programs)


def combine_by_host(
    peers: HostPeers,
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    residual: torch.Tensor,
    local: int,
    programs: int,
) -> torch.Tensor:
    """`combine` and the residual: sums for the other ranks go through the host."""
    places = find_places(_everyones(peers, experts), local, peers.rank)
    results = Results(rows.contiguous(), _everyones(peers, weights), places)
    tokens, width = weights.shape[0], rows.shape[1]
    sums = rows.new_empty(peers.size * tokens, width)
    shape = (peers.size, tokens, width)
    sum_for_others(results, sums.view(shape), programs, push=False)
    partials = peers.collectives.all_to_all(sums, 0)
    return add_sums(results, partials.view(shape), residual, programs)


@dataclass(frozen=True, slots=True)
class Results:
    """What a rank's experts made, and for whom.

    `rows` is [room, width]; `weights`, [ranks, tokens, choices], are all ranks'.
    """

    rows: torch.Tensor
    weights: torch.Tensor
    places: Places

    @classmethod
    def tell(
        cls,
        peers: Peers,
        rows: torch.Tensor,
        experts: torch.Tensor,
        weights: torch.Tensor,
        local: int,
    ) -> Results:
        """The results of this rank, after all were told all choices and weights.

        When it returns, the sums of the last call have been read on all ranks.
        """
        shape = (peers.size, *experts.shape)
        choices = peers.buffer("combined_choices", shape, experts.dtype)
        factors = peers.buffer("combined_weights", shape, weights.dtype)
        # Without this one nobody knows that the last call has read what it got.
        peers.barrier("combined_choices")
        copy_to_all(peers, choices, experts)
        copy_to_all(peers, factors, weights)
        peers.barrier("combined_choices")
        everyones = choices.of_rank[peers.rank]
        places = find_places(everyones, local, peers.rank)
        return cls(rows.contiguous(), factors.of_rank[peers.rank], places)

    def buffer(self, peers: Peers) -> SharedBuffer:
        """Where the sums of all ranks arrive, a share for each."""
        tokens, width = self.weights.shape[1], self.rows.shape[1]
        return peers.buffer("combined", (peers.size, tokens, width), self.rows.dtype)

    @property
    def narrow(self) -> bool:
        """Whether products with the weights have the dtype of the rows."""
        wide = torch.promote_types(self.rows.dtype, self.weights.dtype)
        return wide == self.rows.dtype


def sum_for_others(
    results: Results, targets: torch.Tensor, programs: int, *, push: bool
) -> None:
    """Write the sums for all other ranks' tokens.

    `targets` is [ranks, tokens, width]; with `push`, it has the addresses of all ranks'
    such buffers, and the sums go into this rank's share of each.
    """
    from dynaflow_dsl.kernels import exchange_launches

    ranks, tokens, choices = results.weights.shape
    width = results.rows.shape[1]
    tile = Tile.of(width, results.rows.itemsize, _SUM_TILE)
    grid = (tile.programs((ranks - 1) * tokens, programs),)
    exchange_launches.sum_for_others[grid](
        results.rows,
        results.places.of_choice,
        results.weights,
        targets,
        tokens,
        width,
        results.places.rank,
        RANKS=ranks,
        CHOICES=choices,
        NARROW=results.narrow,
        PUSH=push,
        ALIGNED=aligned(width, results.rows.itemsize),
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )


def add_sums(
    results: Results, partials: torch.Tensor, residual: torch.Tensor, programs: int
) -> torch.Tensor:
    """`residual` and the sums of all ranks; `partials` are those of the others."""
    from dynaflow_dsl.kernels import exchange_launches

    ranks, tokens, choices = results.weights.shape
    width = results.rows.shape[1]
    summed = residual.new_empty(residual.shape)
    tile = Tile.of(width, results.rows.itemsize, _SUM_TILE)
    exchange_launches.add_sums[(tile.programs(tokens, programs),)](
        results.rows,
        results.places.of_choice,
        results.weights,
        results.places.experts,
        partials,
        residual.contiguous(),
        summed,
        tokens,
        width,
        results.places.local,
        results.places.rank,
        RANKS=ranks,
        CHOICES=choices,
        NARROW=results.narrow,
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
    return summed
