"""An exchange between experts by all-to-all whose counts are known beforehand.

`dispatch` and `combine` of `dynaflow_dsl.models.exchange` read counts on the host, so
that no CUDA graph can hold a step with them. This one can be captured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from dynaflow_dsl.kernels.exchange import receive
from dynaflow_dsl.kernels.routing import find_places
from dynaflow_dsl.measurement.exchanges import (
    Dispatched,
    all_to_all,
    arranged,
    gathered,
    programs_on,
    summed,
)
from dynaflow_dsl.runtime.groups import players


@contextmanager
def exchanged_by(way: AllToAll, device: torch.device) -> Iterator[None]:
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
        (table,) = gathered((counts,), ranks, role)
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
        # For the combine that gets the tensor, which is kept until then.
        self._waiting: dict[int, tuple[torch.Tensor, Counts, torch.Tensor]] = {}

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
        own, programs = tokens.contiguous(), programs_on(tokens.device)
        # The order of experts is that of ranks: as if one rank had them all.
        chosen = experts.contiguous()
        places = find_places(chosen, chosen[None], ranks * local, 0)
        outgoing, _, _ = receive(own, own[None], places, experts.numel(), programs)
        came = own.new_empty(sum(counts.came), own.shape[1])
        all_to_all(came, outgoing, counts.came, counts.sent, role)
        received = arranged(came, counts.order, room)
        # Whoever gets these may write into them when nobody else reads them any more.
        ends, arrived = counts.ends.clone(), counts.arrived.clone()
        self._waiting[arrived.data_ptr()] = arrived, counts, places.of_choice
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
        _, counts, places = self._waiting.pop(arrived.data_ptr())
        leaving = arranged(rows.contiguous(), counts.back, sum(counts.came))
        results = rows.new_empty(experts.numel(), rows.shape[1])
        all_to_all(results, leaving, counts.sent, counts.came, role)
        return summed(results, weights.contiguous()[None], places)
