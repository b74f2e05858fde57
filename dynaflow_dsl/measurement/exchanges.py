"""What tokens of experts travel by in the steps that schedules are measured beside.

Collectives of NCCL go through the group that plays the role, as torch made it, and in
turn with what computes. Rows are put in order and summed by Triton, with as many
programs as the device has room for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.kernels.tiles import Tile
from dynaflow_dsl.runtime.groups import is_known_to_torch, players

Dispatched: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

# Of a grid, for each multiprocessor.
_PROGRAMS = 4

# The bytes of a tile whose sums are kept in float32.
_SUM_TILE = 16 * 1024


def exchanges_tokens(graph: Graph) -> bool:
    """Whether tokens travel between ranks in a step, and real ones, no stand-ins."""
    roles = {
        operation.arguments[-1]
        for operation in graph.operations
        if operation.operator.startswith("dynaflow.dispatch.")
    }
    groups = [players().get(role) for role in roles if isinstance(role, str)]
    return bool(groups) and all(
        group is not None and is_known_to_torch(group) for group in groups
    )


def summed(
    rows: torch.Tensor, weights: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """The weighted sum of a rank's results for each token of all ranks.

    `weights` and `places`, int32, are [ranks, tokens, choices]; a place is that of a
    row, or -1. Returns [ranks * tokens, width].
    """
    from dynaflow_dsl.measurement import exchange_launches

    ranks, tokens, choices = weights.shape
    width = rows.shape[1]
    sums = rows.new_empty(ranks * tokens, width)
    tile = Tile.of(width, rows.itemsize, _SUM_TILE)
    grid = (tile.programs(ranks * tokens, programs_on(rows.device)),)
    exchange_launches.sum_results[grid](
        rows,
        places,
        weights,
        sums,
        ranks * tokens,
        width,
        CHOICES=choices,
        NARROW=torch.promote_types(rows.dtype, weights.dtype) == rows.dtype,
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
    return sums


def arranged(source: torch.Tensor, order: torch.Tensor, room: int) -> torch.Tensor:
    """Rows in another order, and zeros in those of `room` that are past the last."""
    from dynaflow_dsl.measurement import exchange_launches

    width = source.shape[1]
    target = source.new_empty(room, width)
    tile = Tile.of(width, source.itemsize)
    grid = (tile.programs(room, programs_on(source.device)),)
    exchange_launches.arrange_rows[grid](
        source,
        order,
        target,
        order.shape[0],
        room,
        width,
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
    return target


def programs_on(device: torch.device) -> int:
    """The size of grids that have a device for themselves."""
    if device.type != "cuda":
        return _PROGRAMS
    found: int = torch.cuda.get_device_properties(device).multi_processor_count
    return _PROGRAMS * found


def gathered(
    given: Sequence[torch.Tensor], ranks: int, role: str
) -> list[torch.Tensor]:
    """All ranks' tensors, [ranks, ...], by one launch."""
    group = players()[role]
    found = [one.new_empty(ranks, *one.shape) for one in given]
    # torch 2.13 has new names for both.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    with _coalescing_manager(group):
        for one, all_of_it in zip(given, found, strict=True):
            # As bytes: gloo would bring several dtypes to one.
            target, source = all_of_it.flatten(0, 1), one
            gather(target.view(torch.uint8), source.view(torch.uint8), group=group)
    return found


def reduce_scatter(own: torch.Tensor, given: torch.Tensor, role: str) -> None:
    """Sum what all ranks give, [ranks * rows, ...], this one's share in `own`."""
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(own, given, group=players()[role])


def all_to_all(
    came: torch.Tensor,
    outgoing: torch.Tensor,
    arriving: list[int],
    leaving: list[int],
    role: str,
) -> None:
    """Exchange rows, so many with each rank, in the order of ranks."""
    group = players()[role]
    dist.all_to_all_single(came, outgoing, arriving, leaving, group=group)
