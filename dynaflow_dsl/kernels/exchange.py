"""Tokens to their experts and back, through memory that all ranks reach.

Every rank is told all ranks' choices, so each finds by itself which tokens are for its
experts and where they stand. A token goes to a rank once, however many experts it has
there, and comes back as one sum (see `combining`). `gather_dispatch` brings all rows to
all ranks by copy engine; `push_dispatch` stores only those that are wanted, from SMs.
Where GPUs do not reach each other's memory, both bring all rows to all ranks through
that of the host.
"""

from __future__ import annotations

import torch

from dynaflow_dsl.kernels.host import HostPeers
from dynaflow_dsl.kernels.peers import Peers, SharedBuffer, copy_to_others
from dynaflow_dsl.kernels.routing import Places, find_places
from dynaflow_dsl.kernels.tiles import Tile, aligned
from dynaflow_dsl.kernels.transports import transport_of
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
    experts = experts.contiguous()
    if isinstance(peers, HostPeers):
        return dispatch_by_host(peers, rows, experts, room, local, programs)
    sent, choices = _begin_dispatch(peers, rows, experts)
    copy_to_others(peers, sent, rows)
    return _end_dispatch(peers, rows, experts, sent, choices, room, local, programs)


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
    experts = experts.contiguous()
    if isinstance(peers, HostPeers):
        return dispatch_by_host(peers, rows, experts, room, local, programs)
    sent, choices = _begin_dispatch(peers, rows, experts)
    count, width = rows.shape
    tile = Tile.of(width, rows.itemsize)
    exchange_launches.push_tokens[(tile.programs(count, programs),)](
        rows,
        experts,
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
    return _end_dispatch(peers, rows, experts, sent, choices, room, local, programs)


def _begin_dispatch(
    peers: Peers, rows: torch.Tensor, experts: torch.Tensor
) -> tuple[SharedBuffer, SharedBuffer]:
    """Where other ranks' tokens arrive, a share for each sender, and their choices.

    The choices are under way when it returns.
    """
    sent = peers.buffer("dispatched", (peers.size, *rows.shape), rows.dtype)
    shape = (peers.size, *experts.shape)
    choices = peers.buffer("dispatched_choices", shape, experts.dtype)
    peers.barrier("dispatched")  # what came for the last call has been read
    copy_to_others(peers, choices, experts)
    return sent, choices


def _end_dispatch(
    peers: Peers,
    rows: torch.Tensor,
    experts: torch.Tensor,
    sent: SharedBuffer,
    choices: SharedBuffer,
    room: int,
    local: int,
    programs: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    peers.barrier("dispatched")
    places = find_places(experts, choices.of_rank[peers.rank], local, peers.rank)
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
    places = find_places(experts, peers.everyones(experts), local, peers.rank)
    return receive(rows, peers.everyones(rows), places, room, programs)


def receive(
    own: torch.Tensor, sent: torch.Tensor, places: Places, room: int, programs: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `dispatch` returns.

    `own` are this rank's tokens, [tokens, width], and `sent` those of all others,
    [ranks, tokens, width].
    """
    from dynaflow_dsl.kernels import exchange_launches

    ranks, tokens, choices = places.of_choice.shape
    width = own.shape[1]
    received = own.new_empty(room, width)
    fits = torch.empty((), dtype=torch.bool, device=own.device)
    tile = Tile.of(width, own.itemsize)
    exchange_launches.spread_rows[
        (tile.programs(max(ranks * tokens, room), programs),)
    ](
        own,
        sent,
        places.of_choice,
        places.needed,
        received,
        fits,
        tokens,
        room,
        width,
        places.rank,
        RANKS=ranks,
        CHOICES=choices,
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
    torch._assert_async(fits, "a rank has no room for its experts' tokens")
    return received, places.ends, places.arrived
