"""All-reduce in the ranks' own memory, fused with the norm behind it."""

from __future__ import annotations

import torch

from dynaflow_dsl.kernels.copied import reduced_norm
from dynaflow_dsl.kernels.peers import Peers, SharedBuffer
from dynaflow_dsl.kernels.tiles import aligned, power_of_two
from dynaflow_dsl.kernels.transports import peers_of
from dynaflow_dsl.runtime.kernels import kernel


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
