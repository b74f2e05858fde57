"""Exchanges between experts that one CUDA graph can hold, by NCCL and in turn.

What a schedule of an expert-parallel model is measured beside: the operators `dispatch`
and `combine` of `dynaflow_dsl.models.exchange` read counts on the host, so that a step
with them cannot be captured. Collectives go through the group that plays the role, as
torch made it, on the stream that computes. All else is done by the kernels that are
shipped, and two of their kind, with as many programs as the device has room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.kernels.exchange import Results, receive
from dynaflow_dsl.kernels.routing import Places, find_places
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


@contextmanager
def exchanged_by(way: AllToAll | AllGather, device: torch.device) -> Iterator[None]:
    """Have the operators do what they do on a device in this way, until the end.

    Also in a model that is compiled already: it calls them when it runs.
    """
    with torch.library._scoped_library("dynaflow", "IMPL") as library:
        library.impl("dispatch", way.dispatch, device.type.upper())
        library.impl("combine", way.combine, device.type.upper())
        yield


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one dispatch, what depends on counts alone.

    `sent` are the rows for each rank and `came` those from each; `ends` and `arrived`
    are what dispatch returns. `order`, int64, brings the rows that came by experts, and
    `back` returns them.
    """

    sent: list[int]
    came: list[int]
    ends: torch.Tensor
    arrived: torch.Tensor
    order: torch.Tensor
    back: torch.Tensor

    @classmethod
    def of(
        cls, experts: torch.Tensor, room: int, local: int, ranks: int, role: str
    ) -> Counts:
        """The counts of these choices: a collective that waits for the device.

        All ranks raise RuntimeError where one has no room for what it would get.
        """
        counts = torch.bincount(experts.flatten(), minlength=ranks * local)
        (table,) = _gathered((counts,), ranks, role)
        by_rank = table.view(ranks, ranks, local)  # sender, receiver, expert
        if (most := int(by_rank.sum((0, 2)).max())) > room:
            raise RuntimeError(f"a rank gets {most} rows and has room for {room}")
        rank = players()[role].rank()
        arrived = by_rank[:, rank].contiguous()
        came = arrived.sum(1).tolist()
        numbers = torch.arange(local, device=experts.device).repeat(ranks)
        order = numbers.repeat_interleave(arrived.flatten()).argsort(stable=True)
        return cls(
            sent=by_rank[rank].sum(1).tolist(),
            came=came,
            ends=arrived.sum(0).cumsum(0, dtype=torch.int32),
            arrived=arrived,
            order=order,
            back=order.argsort(),
        )


@dataclass(slots=True)
class Exchanges:
    """What was dispatched and waits for its `combine`, by where its `arrived` lies.

    Each is combined once; until then the tensor is kept, and so its place.
    """

    waiting: dict[int, tuple[torch.Tensor, Any]] = field(default_factory=dict)

    def keep(self, arrived: torch.Tensor, what: Any) -> None:
        """Keep something for the combine that gets `arrived`."""
        self.waiting[arrived.data_ptr()] = arrived, what

    def take(self, arrived: torch.Tensor) -> Any:
        """What was kept; raises ValueError where nothing was."""
        if (found := self.waiting.pop(arrived.data_ptr(), None)) is None:
            raise ValueError("a combine belongs to no dispatch, or to one for two")
        return found[1]


class AllToAll:
    """Rows sent to their experts and back by one all-to-all each.

    The first step records its counts; `repeat` has those of later steps taken from it,
    so that nothing waits for the host and all that follows from counts is there before
    a step begins. No engine could do this with real routing, whose counts differ in
    every step: it is a lower bound of what is captured with all-to-all. A step with
    other routing than the first gives wrong results and no error.
    """

    def __init__(self) -> None:
        self._known: list[Counts] = []
        self._next: int | None = None
        self._kept = Exchanges()

    def repeat(self) -> None:
        """From now on, every step has the counts of the first."""
        self._next = 0

    def _counts(
        self, experts: torch.Tensor, room: int, local: int, ranks: int, role: str
    ) -> Counts:
        if self._next is None:
            self._known.append(Counts.of(experts, room, local, ranks, role))
            return self._known[-1]
        found = self._known[self._next]
        self._next = (self._next + 1) % len(self._known)
        return found

    def dispatch(
        self,
        tokens: torch.Tensor,
        experts: torch.Tensor,
        room: int,
        local: int,
        ranks: int,
        role: str,
    ) -> Dispatched:
        """See `dynaflow_dsl.models.exchange.dispatch`."""
        counts = self._counts(experts, room, local, ranks, role)
        own, programs = tokens.contiguous(), _programs(tokens.device)
        # The order of experts is that of ranks: as if one rank had them all.
        places = find_places(experts.contiguous()[None], ranks * local, 0)
        outgoing, _, _ = receive(own, own[None], places, experts.numel(), programs)
        came = own.new_empty(sum(counts.came), own.shape[1])
        _all_to_all(came, outgoing, counts.came, counts.sent, role)
        received = _arranged(came, counts.order, room)
        # Whoever gets these may write into them when nobody else reads them any more.
        ends, arrived = counts.ends.clone(), counts.arrived.clone()
        self._kept.keep(arrived, (counts, places))
        return received, ends, arrived

    def combine(
        self,
        rows: torch.Tensor,
        experts: torch.Tensor,
        weights: torch.Tensor,
        arrived: torch.Tensor,
        local: int,
        ranks: int,
        role: str,
    ) -> torch.Tensor:
        """See `dynaflow_dsl.models.exchange.combine`."""
        counts, places = self._kept.take(arrived)
        leaving = _arranged(rows.contiguous(), counts.back, sum(counts.came))
        results = rows.new_empty(experts.numel(), rows.shape[1])
        _all_to_all(results, leaving, counts.sent, counts.came, role)
        return _sums(results, weights.contiguous()[None], places)


class AllGather:
    """All tokens gathered on all ranks, and their results summed and scattered.

    What serving engines capture where counts are not known: everything that travels has
    a size that follows from the inputs' (vLLM: the all-to-all backend
    `allgather_reducescatter`). Every rank takes the rows of its own experts, sums their
    results for each token, zero for those of others, and a reduce-scatter adds the sums
    in the dtype of the rows. Tokens and choices are gathered by one launch of NCCL,
    weights by another, since `dispatch` does not know them. All ranks need equally many
    tokens.
    """

    def __init__(self) -> None:
        self._kept = Exchanges()

    def dispatch(
        self,
        tokens: torch.Tensor,
        experts: torch.Tensor,
        room: int,
        local: int,
        ranks: int,
        role: str,
    ) -> Dispatched:
        """See `dynaflow_dsl.models.exchange.dispatch`.

        More rows than a rank has room for stop the program on the device.
        """
        own = tokens.contiguous()
        everyones, choices = _gathered((own, experts.contiguous()), ranks, role)
        places = find_places(choices, local, players()[role].rank())
        made = receive(own, everyones, places, room, _programs(own.device))
        self._kept.keep(made[2], places)
        return made

    def combine(
        self,
        rows: torch.Tensor,
        experts: torch.Tensor,
        weights: torch.Tensor,
        arrived: torch.Tensor,
        local: int,
        ranks: int,
        role: str,
    ) -> torch.Tensor:
        """See `dynaflow_dsl.models.exchange.combine`."""
        (factors,) = _gathered((weights.contiguous(),), ranks, role)
        sums = _sums(rows.contiguous(), factors, self._kept.take(arrived))
        combined = rows.new_empty(experts.shape[0], rows.shape[1])
        _reduce_scatter(combined, sums, role)
        return combined


def _sums(rows: torch.Tensor, weights: torch.Tensor, places: Places) -> torch.Tensor:
    """The weighted sum of a rank's results for each token of all ranks.

    `weights` is [ranks, tokens, choices]; returns [ranks * tokens, width].
    """
    from dynaflow_dsl.measurement import exchange_launches

    ranks, tokens, choices = weights.shape
    width = rows.shape[1]
    sums = rows.new_empty(ranks * tokens, width)
    tile = Tile.of(width, rows.itemsize, _SUM_TILE)
    grid = (tile.programs(ranks * tokens, _programs(rows.device)),)
    exchange_launches.sum_results[grid](
        rows,
        places.of_choice,
        weights,
        sums,
        ranks * tokens,
        width,
        CHOICES=choices,
        NARROW=Results(rows, weights, places).narrow,
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
    return sums


def _arranged(source: torch.Tensor, order: torch.Tensor, room: int) -> torch.Tensor:
    """Rows in another order, and zeros in those of `room` that are past the last."""
    from dynaflow_dsl.measurement import exchange_launches

    width = source.shape[1]
    target = source.new_empty(room, width)
    tile = Tile.of(width, source.itemsize)
    grid = (tile.programs(room, _programs(source.device)),)
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


def _programs(device: torch.device) -> int:
    if device.type != "cuda":
        return _PROGRAMS
    found: int = torch.cuda.get_device_properties(device).multi_processor_count
    return _PROGRAMS * found


def _gathered(
    given: Sequence[torch.Tensor], ranks: int, role: str
) -> list[torch.Tensor]:
    """All ranks' tensors, [ranks, ...], by one launch."""
    group = players()[role]
    found = [one.new_empty(ranks, *one.shape) for one in given]
    # torch 2.13 has new names for both.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    with _coalescing_manager(group):
        for one, all_of_it in zip(given, found, strict=True):
            gather(all_of_it.flatten(0, 1), one, group=group)
    return found


def _reduce_scatter(own: torch.Tensor, given: torch.Tensor, role: str) -> None:
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(own, given, group=players()[role])


def _all_to_all(
    came: torch.Tensor,
    outgoing: torch.Tensor,
    arriving: list[int],
    leaving: list[int],
    role: str,
) -> None:
    group = players()[role]
    dist.all_to_all_single(came, outgoing, arriving, leaving, group=group)
