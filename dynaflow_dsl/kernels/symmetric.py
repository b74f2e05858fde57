"""Ranks whose GPUs reach each other's memory: symmetric memory of PyTorch.

Every rank makes a buffer of the same size, and all map all of them. Who waits for whom
is in flags in memory of the host, which the front ends of the devices write and wait
for: a kernel that waits would need an SM, and the kernels that a transfer runs beside
leave none for as long as a tile of theirs takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch

from dynaflow_dsl.kernels.host_memory import Layout, Slots, Tell, share_slots
from dynaflow_dsl.kernels.lanes import DriverPinning, StreamLane
from dynaflow_dsl.kernels.peers import (
    Buffers,
    SharedBuffer,
    Usage,
    others,
    setting_up,
)
from dynaflow_dsl.runtime.driver import MemoryOperation, awaited, written
from dynaflow_dsl.runtime.groups import players

# Each name of a buffer has flags of its own; the kernels have about ten names.
_NAMES = 64


@dataclass(slots=True)
class SymmetricPeers:
    """See `Peers`; `role` is that of the group.

    `tell` gives what each rank says to all of them, a collective of the group.
    """

    role: str
    device: torch.device
    tell: Tell
    usage: Usage = field(init=False)
    _buffers: Buffers = field(init=False)
    _flags: Slots | None = None
    _numbers: dict[str, int] = field(default_factory=dict)
    _kept: list[tuple[torch.Tensor, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.usage = Usage(self.device)
        self._buffers = Buffers(self._make)

    @property
    def rank(self) -> int:
        """See `Peers`: the place in the group that plays the role."""
        return players()[self.role].rank()

    @property
    def size(self) -> int:
        """How many ranks play the role."""
        return players()[self.role].size()

    def buffer(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype
    ) -> SharedBuffer:
        """See `Peers`; a call that makes one is a collective of the group.

        Raises RankError (DFS818) where the ranks cannot share memory of the host.
        """
        self.usage.note()
        return self._buffers.of(name, shape, dtype)

    def _make(self, name: str, count: int, dtype: torch.dtype) -> SharedBuffer:
        # Imported here: a build of PyTorch without CUDA lacks what it imports.
        import torch.distributed._symmetric_memory as symmetric_memory

        with setting_up(self.role, self.device):
            if self._flags is None:
                self._flags = self._make_flags()
            # Names come in one order on all ranks.
            self._numbers.setdefault(name, len(self._numbers))
            mine = symmetric_memory.empty(count, dtype=dtype, device=self.device)
            group = players()[self.role].group_name
            # PyTorch zeroes the memory, and fills tables of where the others' lies, on
            # a stream that those of a step do not wait for; and the tables may be
            # where kernels that are still under way have their temporaries.
            torch.cuda.synchronize(self.device)
            handle = symmetric_memory.rendezvous(mine, group)
            torch.cuda.synchronize(self.device)
            # The mapped buffers own nothing: these two keep their memory.
            self._kept.append((mine, handle))
            return SharedBuffer.of(
                tuple(
                    handle.get_buffer(rank, (count,), dtype)
                    for rank in range(self.size)
                )
            )

    def _make_flags(self) -> Slots:
        layout = Layout(self.size, capacity=256, slots=_NAMES)
        return share_slots(self.role, self.rank, layout, self.tell, DriverPinning())

    def barrier(self, name: str) -> None:
        """See `Peers`: flags go up for all others, and down when theirs are up."""
        mine, all_others = self.rank, others(self.rank, self.size)
        up = (self._changed(name, mine, rank, 1) for rank in all_others)
        down = (self._changed(name, rank, mine, 0) for rank in all_others)
        self._lane().do(*chain(*up, *down))

    @contextmanager
    def swapped(self, name: str, tensor: torch.Tensor) -> Iterator[torch.Tensor]:
        """See `Peers`: the other's memory is written once it has read the last one."""
        mine, theirs = self.rank, 1 - self.rank
        place = self.buffer(name, (tensor.numel(),), tensor.dtype)
        free, full = self._changed(name, mine, theirs, 1)
        came, read = self._changed(name, theirs, mine, 0)
        lane = self._lane()
        lane.do(free)
        lane.copy(place.of_rank[theirs], tensor)
        lane.do(full, came)
        yield place.of_rank[mine]
        lane.do(read)

    def _changed(
        self, name: str, sender: int, reader: int, value: int
    ) -> tuple[MemoryOperation, MemoryOperation]:
        """Wait until a flag is not at a value, which is 0 or 1, and set it to that."""
        assert self._flags is not None
        address = self._flags.flag(sender, self._numbers[name], reader)
        wait, write = *awaited(1 - value, address), *written(value, address)
        return wait, write

    def _lane(self) -> StreamLane:
        return StreamLane(torch.cuda.current_stream(self.device))

    def close(self) -> None:
        """Unpin the flags; PyTorch frees the memory that nobody keeps."""
        if self._flags is not None:
            DriverPinning().unregister(self._flags.memory.data_ptr())
            self._flags = None
