"""Several ranks in one process, whose buffers all of them reach."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import torch

from dynaflow_dsl.kernels.host import HostPeers
from dynaflow_dsl.kernels.peers import Buffers, SharedBuffer

T = TypeVar("T")


def meet(monkeypatch: pytest.MonkeyPatch) -> dict[str, Rank]:
    """Lets the kernels find their rank by the role that they are called with."""
    found: dict[str, Rank] = {}
    for place in (
        "reduction.peers_of",
        "exchange.transport_of",
        "combining.transport_of",
        "copied.transport_of",
    ):
        monkeypatch.setattr(
            f"dynaflow_dsl.kernels.{place}", lambda role, tensor: found.get(role)
        )
    return found


@dataclass
class World:
    """Ranks that take turns: one runs until its next barrier, where the next goes on.

    Triton's interpreter runs one kernel at a time.
    """

    size: int
    device: str = "cpu"
    names: list[str] = field(default_factory=list)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.meeting = threading.Barrier(self.size, timeout=60)
        # Who asks first has them made for all.
        self.buffers = Buffers(self._make)

    def run(self, work: Callable[[Rank], T]) -> list[T]:
        """What `work` returns on each rank."""
        with ThreadPoolExecutor(self.size) as pool:
            started = [pool.submit(self._alone, work, k) for k in range(self.size)]
        errors = [each.exception() for each in started]
        # Ranks that wait for one that failed only say that they waited.
        first = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)]
        for error in (*filter(None, first), *filter(None, errors)):
            raise error
        return [each.result() for each in started]

    def _alone(self, work: Callable[[Rank], T], rank: int) -> T:
        try:
            with self.turn:
                return work(Rank(self, rank))
        except BaseException:
            self.meeting.abort()
            raise

    def _make(self, name: str, count: int, dtype: torch.dtype) -> SharedBuffer:
        self.names.append(name)
        # What nobody wrote must not be read: not zeros by chance.
        fresh = torch.full((self.size, count), 77, dtype=dtype, device=self.device)
        return SharedBuffer.of(fresh.unbind())


@dataclass
class Rank:
    """One rank's view of a world; see `dynaflow_dsl.kernels.peers.Peers`."""

    world: World
    rank: int

    @property
    def size(self) -> int:
        return self.world.size

    def buffer(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype
    ) -> SharedBuffer:
        return self.world.buffers.of(name, shape, dtype)

    def barrier(self, name: str) -> None:
        assert name in self.world.names
        self.world.turn.release()
        try:
            self.world.meeting.wait()
        finally:
            self.world.turn.acquire()

    @contextmanager
    def swapped(self, name: str, tensor: torch.Tensor) -> Iterator[torch.Tensor]:
        assert self.size == 2
        place = self.buffer(name, (tensor.numel(),), tensor.dtype)
        self.barrier(name)
        place.of_rank[1 - self.rank].copy_(tensor)
        self.barrier(name)
        yield place.of_rank[self.rank]


class HostRank(HostPeers):
    """One rank of a world whose ranks have memory of the host in common."""

    def __init__(self, seat: Rank) -> None:
        super().__init__("ep", torch.device("cpu"), seat.rank, seat.size, lambda _: [])
        self.seat = seat

    @property
    def collectives(self) -> Any:
        """What `HostCollectives` does, by turns of the ranks."""
        return WorldCollectives(self.seat)


@dataclass
class WorldCollectives:
    """The two of `HostCollectives` that exchanges use; sizes are not cut."""

    seat: Rank

    def all_gather(self, tensor: torch.Tensor, chunks: int) -> torch.Tensor:
        assert chunks == 0
        return torch.cat(self._everyones(tensor))

    def all_to_all(self, tensor: torch.Tensor, chunks: int) -> torch.Tensor:
        assert chunks == 0
        shares = [one.chunk(self.seat.size) for one in self._everyones(tensor)]
        return torch.cat([one[self.seat.rank] for one in shares])

    def _everyones(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        assert tensor.is_contiguous()
        shape = (self.seat.size, *tensor.shape)
        table = self.seat.buffer("host", shape, tensor.dtype)
        self.seat.barrier("host")
        table.of_rank[0][self.seat.rank].copy_(tensor)
        self.seat.barrier("host")
        return [one.clone() for one in table.of_rank[0]]
