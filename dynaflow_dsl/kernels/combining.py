"""Results of experts back to where their tokens came from, added up on the way.

See `exchange` for how tokens come to their experts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dynaflow_dsl.kernels.host import HostPeers
from dynaflow_dsl.kernels.peers import Peers, SharedBuffer, copy_to_others, others
from dynaflow_dsl.kernels.routing import Places, find_places
from dynaflow_dsl.kernels.tiles import Tile, aligned
from dynaflow_dsl.kernels.transports import transport_of
from dynaflow_dsl.runtime.kernels import kernel

_OPERATORS = torch.ops.dynaflow

# Sums of several rows are kept in float32 while a tile is under way.
_SUM_TILE = 16 * 1024


def combined(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    arrived: torch.Tensor,
    local: int,
    ranks: int,
    group: str,
) -> torch.Tensor:
    """Reference: `dynaflow_dsl.models.exchange.combine`."""
    made: torch.Tensor = _OPERATORS.combine(
        rows, experts, weights, arrived, local, ranks, group
    )
    return made


def combined_and_added(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    arrived: torch.Tensor,
    residual: torch.Tensor,
    local: int,
    ranks: int,
    group: str,
) -> torch.Tensor:
    """Reference: the same, added to the residual.

    `residual`, [..., width], has a row for each token.
    """
    made = combined(rows, experts, weights, arrived, local, ranks, group)
    return residual + made.view(residual.shape)


@kernel(reference=combined, mutates=(), communicator="ep", uses=("exchange",))
def reduce_combine(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    arrived: torch.Tensor,
    local: int,
    ranks: int,
    group: str,
    programs: int = 32,
) -> torch.Tensor:
    """`combine` whose sums over choices are made where the experts are.

    Each rank sends one sum for a token, rounded once to the dtype of `rows`, and by
    copy engine for all tokens; one kernel adds the sums of ranks. `programs` is the
    size of the grids.
    """
    made = _combine(rows, experts, weights, None, local, group, programs, push=False)
    if made is None:
        return combined(rows, experts, weights, arrived, local, ranks, group)
    return made


@kernel(reference=combined_and_added, mutates=(), communicator="ep", uses=("exchange",))
def reduce_combine_add(
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
    """`reduce_combine`, and the addition to the residual in its last kernel.

    A residual of another dtype goes by the reference.
    """
    made = _combine(
        rows, experts, weights, residual, local, group, programs, push=False
    )
    if made is None:
        given = (rows, experts, weights, arrived, residual)
        return combined_and_added(*given, local, ranks, group)
    return made


@kernel(reference=combined, mutates=(), communicator="ep", uses=("exchange",))
def push_combine(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    arrived: torch.Tensor,
    local: int,
    ranks: int,
    group: str,
    programs: int = 32,
) -> torch.Tensor:
    """`reduce_combine` that stores its sums straight into the memory of their ranks.

    Only of tokens that chose an expert of this rank.
    """
    made = _combine(rows, experts, weights, None, local, group, programs, push=True)
    if made is None:
        return combined(rows, experts, weights, arrived, local, ranks, group)
    return made


@kernel(reference=combined_and_added, mutates=(), communicator="ep", uses=("exchange",))
def push_combine_add(
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
    """`push_combine`, and the addition to the residual as in `reduce_combine_add`."""
    made = _combine(rows, experts, weights, residual, local, group, programs, push=True)
    if made is None:
        given = (rows, experts, weights, arrived, residual)
        return combined_and_added(*given, local, ranks, group)
    return made


def _combine(
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    residual: torch.Tensor | None,
    local: int,
    group: str,
    programs: int,
    *,
    push: bool,
) -> torch.Tensor | None:
    """What the kernels return; None where only the reference can."""
    peers = transport_of(group, rows)
    if peers is None or (residual is not None and rows.dtype != residual.dtype):
        return None
    experts, weights = experts.contiguous(), weights.contiguous()
    if isinstance(peers, HostPeers):
        return combine_by_host(peers, rows, experts, weights, residual, local, programs)
    results = Results.tell(peers, rows, experts, weights, local)
    partials = results.buffer(peers)
    if push:
        sum_for_others(results, partials.addresses, programs, push=True)
    else:
        sums = torch.empty_like(partials.of_rank[peers.rank])
        sum_for_others(results, sums, programs, push=False)
        for rank in others(peers.rank, peers.size):
            there = partials.of_rank[rank][peers.rank]
            there.copy_(sums[rank], non_blocking=True)
    peers.barrier("combined")
    return add_sums(results, partials.of_rank[peers.rank], residual, programs)


def combine_by_host(
    peers: HostPeers,
    rows: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    residual: torch.Tensor | None,
    local: int,
    programs: int,
) -> torch.Tensor:
    """The same where sums for the other ranks go through the host."""
    places = find_places(experts, peers.everyones(experts), local, peers.rank)
    results = Results(rows.contiguous(), weights, peers.everyones(weights), places)
    tokens, width = weights.shape[0], rows.shape[1]
    sums = rows.new_empty(peers.size * tokens, width)
    shape = (peers.size, tokens, width)
    sum_for_others(results, sums.view(shape), programs, push=False)
    partials = peers.collectives.all_to_all(sums, 0)
    return add_sums(results, partials.view(shape), residual, programs)


@dataclass(frozen=True, slots=True)
class Results:
    """What a rank's experts made, and for whom.

    `rows` is [room, width]; `weights`, [tokens, choices], are those of this rank's own
    tokens, and `sent`, [ranks, tokens, choices], has those of others.
    """

    rows: torch.Tensor
    weights: torch.Tensor
    sent: torch.Tensor
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
        copy_to_others(peers, choices, experts)
        copy_to_others(peers, factors, weights)
        peers.barrier("combined_choices")
        sent = choices.of_rank[peers.rank]
        places = find_places(experts, sent, local, peers.rank)
        return cls(rows.contiguous(), weights, factors.of_rank[peers.rank], places)

    def buffer(self, peers: Peers) -> SharedBuffer:
        """Where the sums of all ranks arrive, a share for each."""
        tokens, width = self.weights.shape[0], self.rows.shape[1]
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

    ranks, tokens, choices = results.sent.shape
    width = results.rows.shape[1]
    tile = Tile.of(width, results.rows.itemsize, _SUM_TILE)
    grid = (tile.programs((ranks - 1) * tokens, programs),)
    exchange_launches.sum_for_others[grid](
        results.rows,
        results.places.of_choice,
        results.sent,
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
    results: Results,
    partials: torch.Tensor,
    residual: torch.Tensor | None,
    programs: int,
) -> torch.Tensor:
    """The sums of all ranks and `residual`; `partials` are those of the others.

    Of the residual's shape, or [tokens, width] without one.
    """
    from dynaflow_dsl.kernels import exchange_launches

    ranks, tokens, choices = results.sent.shape
    width = results.rows.shape[1]
    shape = (tokens, width) if residual is None else residual.shape
    summed = results.rows.new_empty(shape)
    tile = Tile.of(width, results.rows.itemsize, _SUM_TILE)
    exchange_launches.add_sums[(tile.programs(tokens, programs),)](
        results.rows,
        results.places.of_choice,
        results.weights,
        results.places.experts,
        partials,
        summed if residual is None else residual.contiguous(),
        summed,
        tokens,
        width,
        results.places.local,
        results.places.rank,
        RANKS=ranks,
        CHOICES=choices,
        NARROW=results.narrow,
        ADD=residual is not None,
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
    return summed
