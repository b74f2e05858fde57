"""Several ranks in one process, whose buffers all of them reach."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import torch

from dynaflow_dsl.kernels.peers import SharedBuffer

T = TypeVar("T")


def meet(monkeypatch: pytest.MonkeyPatch) -> dict[str, Rank]:
    """Lets the kernels find their rank by the role that they are called with."""
    found: dict[str, Rank] = {}
    for room in ("reduction", "exchange"):
        place = f"dynaflow_dsl.kernels.{room}.peers_of"
        monkeypatch.setattr(place, lambda role, tensor: found.get(role))
    return found


@dataclass
class World:
    """Ranks that take turns: one runs until its next barrier, where the next goes on.

    Triton's interpreter runs one kernel at a time.
    """

    size: int
    device: str = "cpu"
    buffers: dict[Any, SharedBuffer] = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.meeting = threading.Barrier(self.size, timeout=60)

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
        key = (name, shape, dtype)
        if key not in self.world.buffers:
            # What nobody wrote must not be read: not zeros by chance.
            device = self.world.device
            fresh = torch.full((self.size, *shape), 77, dtype=dtype, device=device)
            self.world.buffers[key] = SharedBuffer.of(fresh.unbind())
        return self.world.buffers[key]

    def barrier(self, name: str) -> None:
        assert any(key[0] == name for key in self.world.buffers)
        self.world.turn.release()
        try:
            self.world.meeting.wait()
        finally:
            self.world.turn.acquire()
