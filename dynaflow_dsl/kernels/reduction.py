"""All-reduce in the ranks' own memory, by the copy engines, and fused with a norm."""

from __future__ import annotations

import torch

from dynaflow_dsl.kernels.peers import Peers, SharedBuffer, peers_of
from dynaflow_dsl.kernels.tiles import aligned, power_of_two
from dynaflow_dsl.runtime.kernels import kernel

_COLLECTIVES = torch.ops._c10d_functional


def reduced(tensor: torch.Tensor, group: str) -> torch.Tensor:
    """Reference: the sum over the ranks of `group`, of any shape."""
    started = _COLLECTIVES.all_reduce(tensor, "sum", group)
    summed: torch.Tensor = _COLLECTIVES.wait_tensor(started)
    return summed


@kernel(reference=reduced, mutates=(), communicator="tp", uses=("copied_all_reduce",))
def copied_all_reduce(tensor: torch.Tensor, group: str) -> torch.Tensor:
    """An all-reduce whose data goes by copy engine: no SM moves it.

    The SMs only add what arrived, a share on each rank.
    """
    peers = peers_of(group, tensor)
    if peers is None:
        return reduced(tensor, group)
    arrivals = send_shares(peers, tensor)
    sums = add_shares(peers, arrivals)
    return collect_shares(peers, sums, tensor)


def send_shares(peers: Peers, tensor: torch.Tensor) -> SharedBuffer:
    """Give every rank its share of this rank's numbers; returns where they arrive."""
    flat = tensor.contiguous().view(-1)
    share = -(-flat.numel() // peers.size)
    arrivals = peers.buffer("shares", (peers.size, share), tensor.dtype)
    peers.barrier("shares")  # what arrived for the last call has been read
    for rank in _others_first(peers):
        mine = flat[rank * share : (rank + 1) * share]
        place = arrivals.of_rank[rank][peers.rank, : mine.numel()]
        place.copy_(mine, non_blocking=True)
    peers.barrier("shares")
    return arrivals


def add_shares(peers: Peers, arrivals: SharedBuffer) -> SharedBuffer:
    """Add what arrived, and give the sum to every rank; returns where sums lie."""
    arrived = arrivals.of_rank[peers.rank]
    total = arrived.sum(0)
    sums = peers.buffer("sums", tuple(arrived.shape), arrived.dtype)
    for rank in _others_first(peers):
        sums.of_rank[rank][peers.rank].copy_(total, non_blocking=True)
    peers.barrier("shares")
    return sums


def collect_shares(
    peers: Peers, sums: SharedBuffer, like: torch.Tensor
) -> torch.Tensor:
    """All shares of the sum, in a new tensor of the shape and dtype of `like`."""
    whole = sums.of_rank[peers.rank].view(-1)[: like.numel()].clone()
    return whole.view(like.shape)


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
    hidden = residual + reduced(update, group)
    wide = hidden.to(torch.float32)
    variance = wide.pow(2).mean(-1, keepdim=True)
    unit = wide * torch.rsqrt(variance + eps)
    return hidden, weight * unit.to(hidden.dtype)


@kernel(
    reference=reduced_norm,
    mutates=(),
    communicator="tp",
    uses=("all_reduce_add_norm",),
)
def all_reduce_add_norm(
    update: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    group: str,
    programs: int = 16,
) -> tuple[torch.Tensor, torch.Tensor]:
    """All-reduce, residual addition and norm in one kernel over symmetric memory.

    As TokenWeave fuses them (arXiv 2505.11329), without NVLink multicast: every rank
    reads the others' numbers where they lie. Two ranks read all rows; with more, each
    adds a share of the rows and writes it to all. `programs` is the size of the grid,
    which says how many SMs it may take. Tensors of several dtypes go by the reference.
    """
    peers = peers_of(group, update)
    if peers is None or not update.dtype == residual.dtype == weight.dtype:
        return reduced_norm(update, residual, weight, eps, group)
    partials = publish(peers, update)
    if peers.size == 2:
        return norm_of_partials(peers, partials, residual, weight, eps, programs)
    sums = add_own_rows(peers, partials, residual, programs)
    return norm_of_sums(peers, sums, residual, weight, eps, programs)


def publish(peers: Peers, update: torch.Tensor) -> SharedBuffer:
    """Let all ranks read this rank's numbers, [rows, width]; returns where they lie."""
    width = update.shape[-1]
    shape = (update.numel() // width, width)
    partials = peers.buffer("partials", shape, update.dtype)
    peers.barrier("partials")  # the numbers of the last call have been read
    partials.of_rank[peers.rank].copy_(update.reshape(shape))
    peers.barrier("partials")
    return partials


def norm_of_partials(
    peers: Peers,
    partials: SharedBuffer,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    programs: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every rank adds all rows, in the order of ranks."""
    from dynaflow_dsl.kernels import launches

    rows, width = partials.of_rank[0].shape
    before = residual.contiguous()
    hidden, normed = torch.empty_like(before), torch.empty_like(before)
    launches.add_norm_of_partials[(min(programs, rows),)](
        partials.addresses,
        before,
        weight,
        hidden,
        normed,
        rows,
        width,
        eps,
        RANKS=peers.size,
        ALIGNED=aligned(width, residual.itemsize),
        BLOCK=power_of_two(width),
    )
    return hidden, normed


def add_own_rows(
    peers: Peers, partials: SharedBuffer, residual: torch.Tensor, programs: int
) -> SharedBuffer:
    """Add a share of the rows and write it on all ranks; returns where sums lie."""
    from dynaflow_dsl.kernels import launches

    rows, width = partials.of_rank[0].shape
    share = -(-rows // peers.size)
    first = min(peers.rank * share, rows)
    last = min(first + share, rows)
    sums = peers.buffer("row_sums", (rows, width), residual.dtype)
    if first < last:
        launches.add_partials_everywhere[(min(programs, last - first),)](
            partials.addresses,
            residual.contiguous(),
            sums.addresses,
            first,
            last,
            width,
            RANKS=peers.size,
            ALIGNED=aligned(width, residual.itemsize),
            BLOCK=power_of_two(width),
        )
    peers.barrier("partials")
    return sums


def norm_of_sums(
    peers: Peers,
    sums: SharedBuffer,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    programs: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy the sums out of the shared memory, and their norm, both like `residual`."""
    from dynaflow_dsl.kernels import launches

    mine = sums.of_rank[peers.rank]
    rows, width = mine.shape
    hidden = residual.new_empty(residual.shape)
    normed = residual.new_empty(residual.shape)
    launches.norm_rows[(min(programs, rows),)](
        mine, weight, hidden, normed, rows, width, eps, BLOCK=power_of_two(width)
    )
    return hidden, normed


def _others_first(peers: Peers) -> list[int]:
    """All ranks, from the next one on, so that not all send to the same one at once."""
    return [(peers.rank + k) % peers.size for k in range(1, peers.size + 1)]
