"""Collectives whose data goes by copy engine, so that no SM moves it.

Where GPUs reach each other's memory a rank's copy engine writes into that of the
others. Where they do not, data goes through memory of the host, in chunks of which one
is copied out while another is copied in (see `pipeline`). SMs only add.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dynaflow_dsl.kernels import sums
from dynaflow_dsl.kernels.host import HostPeers
from dynaflow_dsl.kernels.peers import Peers, copy_to_all, others
from dynaflow_dsl.kernels.transports import transport_of
from dynaflow_dsl.runtime.kernels import kernel
from dynaflow_dsl.runtime.stream_names import group_of_stream

_COLLECTIVES = torch.ops._c10d_functional

# Of one machine; a number that stands for any other is larger.
_MOST_RANKS = 1 << 10


def reduced(tensor: torch.Tensor, group: str) -> torch.Tensor:
    """Reference: the sum over the ranks of `group`, of any shape."""
    started = _COLLECTIVES.all_reduce(tensor, "sum", group)
    summed: torch.Tensor = _COLLECTIVES.wait_tensor(started)
    return summed


@kernel(reference=reduced, mutates=(), by_stream=True)
def copied_all_reduce(
    tensor: torch.Tensor, group: str, chunks: int = 0
) -> torch.Tensor:
    """An all-reduce; SMs only add what arrived, in the order of ranks.

    All ranks get the same bits. Through memory of the host the tensor goes in `chunks`
    pieces; 0 chooses by its size.
    """
    group = group_of_stream(group)
    peers = transport_of(group, tensor)
    if peers is None:
        return reduced(tensor, group)
    with addends(peers, tensor, chunks) as found:
        return sums.total(found).view(tensor.shape)


def reduced_and_added(
    tensor: torch.Tensor, residual: torch.Tensor, group: str
) -> torch.Tensor:
    """Reference: an all-reduce and its addition to the residual, of one shape."""
    return residual + reduced(tensor, group)


@kernel(reference=reduced_and_added, mutates=(), by_stream=True)
def copied_all_reduce_add(
    tensor: torch.Tensor, residual: torch.Tensor, group: str, chunks: int = 0
) -> torch.Tensor:
    """`copied_all_reduce`, and the addition to the residual behind it."""
    group = group_of_stream(group)
    peers = transport_of(group, tensor)
    if peers is None:
        return reduced_and_added(tensor, residual, group)
    with addends(peers, tensor, chunks) as found:
        return sums.added(found, residual)


def reduced_norm(
    update: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    group: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Reference: all-reduce, addition to the residual, and the RMS norm behind it.

    All are [..., width] but `weight`, [width]; returns the sum and its norm.
    """
    return sums.norm(residual + reduced(update, group), weight, eps)


@kernel(reference=reduced_norm, mutates=(), by_stream=True)
def copied_all_reduce_add_norm(
    update: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    group: str,
    chunks: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`copied_all_reduce_add`, and the RMS norm of its result.

    What TokenWeave fuses (arXiv 2505.11329), with the SMs at work once all has arrived.
    """
    group = group_of_stream(group)
    peers = transport_of(group, update)
    if peers is None:
        return reduced_norm(update, residual, weight, eps, group)
    with addends(peers, update, chunks) as found:
        return sums.normed(found, residual, weight, eps)


def scattered(tensor: torch.Tensor, ranks: int, group: str) -> torch.Tensor:
    """Reference: of the sum of [ranks * n, ...], the rows [n, ...] of this rank."""
    started = _COLLECTIVES.reduce_scatter_tensor(tensor, "sum", ranks, group)
    summed: torch.Tensor = _COLLECTIVES.wait_tensor(started)
    return summed


@kernel(reference=scattered, mutates=(), by_stream=True)
def copied_reduce_scatter(
    tensor: torch.Tensor, ranks: int, group: str, chunks: int = 0
) -> torch.Tensor:
    """A reduce-scatter; `chunks` as for `copied_all_reduce`."""
    group = group_of_stream(group)
    match transport_of(group, tensor):
        case None:
            return scattered(tensor, ranks, group)
        case HostPeers() as peers:
            return peers.collectives.reduce_scatter(tensor, chunks)
        case peers:
            total = send_shares(peers, tensor).sum(0, dtype=tensor.dtype)
            return total.view(tensor.shape[0] // ranks, *tensor.shape[1:])


def gathered(tensor: torch.Tensor, ranks: int, group: str) -> torch.Tensor:
    """Reference: the ranks' tensors [n, ...] one after the other, [ranks * n, ...]."""
    started = _COLLECTIVES.all_gather_into_tensor(tensor, ranks, group)
    joined: torch.Tensor = _COLLECTIVES.wait_tensor(started)
    return joined


@kernel(reference=gathered, mutates=(), by_stream=True)
def copied_all_gather(
    tensor: torch.Tensor, ranks: int, group: str, chunks: int = 0
) -> torch.Tensor:
    """An all-gather; `chunks` as for `copied_all_reduce`."""
    group = group_of_stream(group)
    match transport_of(group, tensor):
        case None:
            return gathered(tensor, ranks, group)
        case HostPeers() as peers:
            return peers.collectives.all_gather(tensor, chunks)
        case peers:
            flat = tensor.contiguous().view(-1)
            peers.buffer("gathered", (ranks, flat.numel()), flat.dtype)
            peers.barrier("gathered")  # what the last call gathered has been read
            joined = give_to_all(peers, "gathered", flat).clone()
            return joined.view(ranks * tensor.shape[0], *tensor.shape[1:])


def exchanged(tensor: torch.Tensor, ranks: int, group: str) -> torch.Tensor:
    """Reference: rows [ranks * n, ...], n for each rank, exchanged.

    Raises ValueError for more ranks than there are: the operation lists what each of
    them gets, so that a schedule says how many (`via exchange(ranks = 2)`).
    """
    if ranks > _MOST_RANKS:
        raise ValueError("what each rank gets is listed, and nothing says how many")
    each = [tensor.shape[0] // ranks] * ranks
    started = _COLLECTIVES.all_to_all_single(tensor, each, each, group)
    came: torch.Tensor = _COLLECTIVES.wait_tensor(started)
    return came


@kernel(reference=exchanged, mutates=(), by_stream=True)
def copied_all_to_all(
    tensor: torch.Tensor, ranks: int, group: str, chunks: int = 0
) -> torch.Tensor:
    """An all-to-all of as many rows for each rank; `chunks` as for `copied_all_reduce`.

    Raises ValueError for rows that ranks cannot share evenly.
    """
    if tensor.shape[0] % ranks:
        raise ValueError(
            f"copied_all_to_all sends every rank as many rows as the others, and "
            f"{tensor.shape[0]} rows are not divisible among {ranks} ranks"
        )
    group = group_of_stream(group)
    match transport_of(group, tensor):
        case None:
            return exchanged(tensor, ranks, group)
        case HostPeers() as peers:
            return peers.collectives.all_to_all(tensor, chunks)
        case peers:
            return send_shares(peers, tensor).clone().view(tensor.shape)


@contextmanager
def addends(
    peers: Peers | HostPeers, tensor: torch.Tensor, chunks: int
) -> Iterator[list[torch.Tensor]]:
    """One or two flat tensors whose sum, in this order, is that over the ranks.

    They are there for what the current stream does inside. Of two ranks both get all
    the numbers of the other: as many bytes move as for sums of halves, and nobody waits
    for those.
    """
    flat = tensor.contiguous().view(-1)
    match peers:
        case HostPeers():
            yield peers.collectives.addends(flat, chunks)
        case _ if peers.size == 2:
            with peers.swapped("swapped", flat) as theirs:
                yield [flat, theirs] if peers.rank == 0 else [theirs, flat]
        case _:
            total = send_shares(peers, flat).sum(0, dtype=flat.dtype)
            yield [give_to_all(peers, "sums", total).view(-1)[: flat.numel()]]


def send_shares(peers: Peers, tensor: torch.Tensor) -> torch.Tensor:
    """Give every rank its share of this rank's numbers; returns what arrived here.

    That is [ranks, share]. Past the end of shorter shares it is anything.
    """
    flat = tensor.contiguous().view(-1)
    share = -(-flat.numel() // peers.size)
    arrivals = peers.buffer("shares", (peers.size, share), tensor.dtype)
    peers.barrier("shares")  # what arrived for the last call has been read
    for rank in (*others(peers.rank, peers.size), peers.rank):
        mine = flat[rank * share : (rank + 1) * share]
        place = arrivals.of_rank[rank][peers.rank, : mine.numel()]
        place.copy_(mine, non_blocking=True)
    peers.barrier("shares")
    return arrivals.of_rank[peers.rank]


def give_to_all(peers: Peers, name: str, piece: torch.Tensor) -> torch.Tensor:
    """Give every rank a piece, [numbers]; returns what all gave, [ranks, numbers].

    What the last call left in the buffer of that name has been read by all: a barrier
    of this call came behind it.
    """
    places = peers.buffer(name, (peers.size, piece.numel()), piece.dtype)
    copy_to_all(peers, places, piece)
    peers.barrier(name)
    return places.of_rank[peers.rank]
