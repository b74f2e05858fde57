"""Devices that do what lies in their lanes in any order that waits allow."""

from __future__ import annotations

import ctypes
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from dynaflow_dsl.kernels.host_memory import Layout, Slots
from dynaflow_dsl.kernels.lanes import add_in_order
from dynaflow_dsl.kernels.peers import rounded
from dynaflow_dsl.kernels.pipeline import HostCollectives, Pipeline
from dynaflow_dsl.runtime.driver import MemoryOperation


@dataclass
class Work:
    """Something in a lane: it begins behind marks, and when a flag has a value."""

    act: Callable[[], object]
    behind: Work | None = None
    flag: tuple[int, int] | None = None
    done: bool = False


@dataclass
class FakeLane:
    """See `dynaflow_dsl.kernels.lanes.Lane`."""

    queue: deque[Work] = field(default_factory=deque)
    last: Work | None = None

    def _put(self, work: Work) -> None:
        self.queue.append(work)
        self.last = work

    def do(self, *steps: MemoryOperation) -> None:
        for step in steps:
            place = step.address, step.value
            if step.writes:
                self._put(Work(partial(set_flag, *place)))
            else:
                self._put(Work(lambda: None, flag=place))

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        assert into.shape == source.shape
        assert into.dtype == source.dtype
        assert into.is_contiguous()
        assert source.is_contiguous()
        self._put(Work(lambda: into.copy_(source)))

    def add(self, pieces: Sequence[torch.Tensor], into: torch.Tensor) -> None:
        self._put(Work(lambda: add_in_order(pieces, into)))

    def mark(self) -> Work | None:
        return self.last

    def follow(self, mark: Work | None) -> None:
        self._put(Work(lambda: None, behind=mark))


def flag_at(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


def set_flag(address: int, value: int) -> None:
    assert flag_at(address) == 1 - value, "a flag is written before it was awaited"
    ctypes.c_int32.from_address(address).value = value


@dataclass
class Device:
    """The three lanes of a rank."""

    rank: int
    main: FakeLane
    sending: FakeLane
    receiving: FakeLane

    @property
    def queues(self) -> list[deque[Work]]:
        return [one.queue for one in (self.main, self.sending, self.receiving)]


class Machine:
    """Ranks with a device each; hosts issue everything before the devices begin."""

    def __init__(self, ranks: int, capacity: int = 1 << 16) -> None:
        layout = Layout(ranks, rounded(capacity))
        # What nobody wrote must not be read.
        memory = torch.full((layout.size,), 0x5A, dtype=torch.uint8)
        memory[: layout.head] = 0
        self.slots = Slots(layout, memory, memory.data_ptr())
        self.devices = [
            Device(rank, FakeLane(), FakeLane(), FakeLane()) for rank in range(ranks)
        ]

    def collectives(self, rank: int) -> HostCollectives:
        """Those of a rank, which are issued only."""
        device = self.devices[rank]

        def begin(capacity: int) -> Pipeline:
            assert capacity <= self.slots.layout.capacity
            return Pipeline(
                rank, self.slots, device.main, device.sending, device.receiving
            )

        return HostCollectives(rank, len(self.devices), begin)

    def run(self, seed: int) -> None:
        """Do all that was issued, in a random order that waits allow."""
        self._finish([q for each in self.devices for q in each.queues], seed)

    def run_in_single_file(self, seed: int) -> None:
        """As `run`, each device doing one thing after the other.

        In an order that keeps to lanes and marks and knows nothing of flags, as CUDA
        may choose one.
        """
        self._finish([_in_line(each, seed + each.rank) for each in self.devices], seed)

    def _finish(self, queues: Sequence[deque[Work]], seed: int) -> None:
        finish(queues, seed)
        assert int(self.slots.memory[: self.slots.layout.head].max()) == 0


def finish(queues: Sequence[deque[Work]], seed: int) -> None:
    """Do all that lies in queues, in a random order that waits allow."""
    dice = random.Random(seed)
    while any(queues):
        ready = [queue for queue in queues if queue and _can_begin(queue[0])]
        assert ready, "every lane waits for another"
        work = dice.choice(ready).popleft()
        work.act()
        work.done = True


def _can_begin(work: Work) -> bool:
    if work.behind is not None and not work.behind.done:
        return False
    return work.flag is None or flag_at(work.flag[0]) == work.flag[1]


def _in_line(device: Device, seed: int) -> deque[Work]:
    dice, line = random.Random(seed), deque[Work]()
    placed: set[int] = set()
    while any(device.queues):
        open_ones = [
            queue
            for queue in device.queues
            if queue and (queue[0].behind is None or id(queue[0].behind) in placed)
        ]
        work = dice.choice(open_ones).popleft()
        placed.add(id(work))
        line.append(work)
    return line
