"""Ranks that share memory of the host, where GPUs do not reach each other's.

What one of them sends is copied into the shared memory by its copy engine, and out of
it by those of the others; no SM moves it, and no host takes part.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from dynaflow_dsl.kernels.host_memory import Layout, Slots, Tell, share_slots
from dynaflow_dsl.kernels.lanes import DriverPinning, StreamLane
from dynaflow_dsl.kernels.peers import Usage, rounded, setting_up
from dynaflow_dsl.kernels.pipeline import WHOLE, HostCollectives, Pipeline


@dataclass(slots=True)
class HostPeers:
    """The ranks of the group that plays `role`, of which this one is `rank`.

    `tell` gives what each rank says to all of them, a collective of the group. One call
    of one rank is under way at a time, on whatever stream.
    """

    role: str
    device: torch.device
    rank: int
    size: int
    tell: Tell
    usage: Usage = field(init=False)
    _slots: Slots | None = None
    _kept: list[Slots] = field(default_factory=list)
    _sides: tuple[StreamLane, StreamLane] | None = None

    def __post_init__(self) -> None:
        self.usage = Usage(self.device)

    @property
    def collectives(self) -> HostCollectives:
        """What they do together."""
        return HostCollectives(self.rank, self.size, self._begin)

    def everyones(self, tensor: torch.Tensor) -> torch.Tensor:
        """What all ranks have of this, [ranks, ...]."""
        return self.collectives.all_gather(tensor, 0).view(self.size, *tensor.shape)

    def _begin(self, capacity: int) -> Pipeline:
        """A pipeline on the current stream; a collective where slots are made for it.

        Raises RankError (DFS818) where that cannot be.
        """
        if self._slots is None or self._slots.layout.capacity < capacity:
            # The old ones stay: a captured graph may use them.
            self._slots = self._make(max(rounded(capacity), WHOLE))
            self._kept.append(self._slots)
        if self._sides is None:
            self._sides = self._lane(), self._lane()
        self.usage.note()
        main = StreamLane(torch.cuda.current_stream(self.device))
        return Pipeline(self.rank, self._slots, main, *self._sides)

    def _make(self, capacity: int) -> Slots:
        with setting_up(self.role, self.device):
            layout = Layout(self.size, capacity)
            return share_slots(self.role, self.rank, layout, self.tell, DriverPinning())

    def _lane(self) -> StreamLane:
        return StreamLane(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Unpin the memory, in which nobody works any more."""
        for one in self._kept:
            DriverPinning().unregister(one.memory.data_ptr())
        self._kept.clear()
        self._slots = None
