"""Symmetric memory is ready when a step first uses it, and flags order who uses it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from dynaflow_dsl.kernels import symmetric
from dynaflow_dsl.kernels.host_memory import Layout, Slots
from dynaflow_dsl.kernels.peers import SharedBuffer
from dynaflow_dsl.kernels.symmetric import SymmetricPeers
from tests.kernels.devices import FakeLane, finish
from tests.kernels.test_host_memory import Pinning

NAME = "torch.distributed._symmetric_memory"
CPU = torch.device("cpu")


def test_the_device_is_idle_around_what_pytorch_writes_on_its_own_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Zeros are written by `empty`, tables by `rendezvous`, in memory of the step's."""
    done: list[str] = []

    def empty(count: int, *, dtype: torch.dtype, device: torch.device) -> Any:
        done.append("empty")
        return torch.zeros(count, dtype=dtype, device=device)

    def rendezvous(mine: torch.Tensor, group: str) -> Any:
        done.append(f"rendezvous of {group}")
        return SimpleNamespace(get_buffer=lambda rank, shape, dtype: mine)

    fake = ModuleType(NAME)
    monkeypatch.setattr(fake, "empty", empty, raising=False)
    monkeypatch.setattr(fake, "rendezvous", rendezvous, raising=False)
    monkeypatch.setitem(sys.modules, NAME, fake)
    monkeypatch.setattr(torch.distributed, "_symmetric_memory", fake, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: done.append("idle"))
    monkeypatch.setattr(symmetric, "setting_up", lambda role, device: nullcontext())
    monkeypatch.setattr(symmetric.Usage, "note", lambda self: None)
    pinning = Pinning()
    monkeypatch.setattr(symmetric, "DriverPinning", lambda: pinning)
    group = SimpleNamespace(group_name="g", size=lambda: 2, rank=lambda: 0)
    monkeypatch.setattr(symmetric, "players", lambda: {"tp": group})
    peers = SymmetricPeers("tp", CPU, lambda said: [said])
    peers.buffer("sums", (2, 3), torch.float32)
    assert done == ["empty", "idle", "rendezvous of g", "idle"]
    # What is there already is given at once.
    peers.buffer("sums", (3, 2), torch.float32)
    assert len(done) == 4
    assert len(pinning.pinned) == 1
    peers.close()
    assert pinning.pinned == {}


class Member(SymmetricPeers):
    """A rank whose device does what lies in its lane when the test lets it."""

    def __init__(self, rank: int, shared: SharedBuffer, flags: Slots) -> None:
        super().__init__("tp", CPU, lambda said: [said])
        self.seat, self.shared, self.lane = rank, shared, FakeLane()
        self._flags, self._numbers = flags, {"one": 0, "other": 1}

    @property
    def rank(self) -> int:
        return self.seat

    @property
    def size(self) -> int:
        return len(self.shared.of_rank)

    def buffer(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype
    ) -> SharedBuffer:
        return self.shared.shaped(shape)

    def _lane(self) -> FakeLane:  # type: ignore[override]
        return self.lane


def members(ranks: int) -> list[Member]:
    layout = Layout(ranks, 256, slots=2)
    memory = torch.zeros(layout.size, dtype=torch.uint8)
    flags = Slots(layout, memory, memory.data_ptr())
    shared = SharedBuffer.of(torch.full((ranks, 8), 77.0).unbind())
    return [Member(rank, shared, flags) for rank in range(ranks)]


@pytest.mark.parametrize("seed", range(20))
def test_swapped_numbers_are_read_before_the_next_ones_come(seed: int) -> None:
    both = members(2)
    read = torch.zeros(2, 5, 8)
    for turn in range(5):
        for one in both:
            with one.swapped("one", torch.full((8,), 10.0 * turn + one.rank)) as theirs:
                one.lane.copy(read[one.rank, turn], theirs)
    finish([one.lane.queue for one in both], seed)
    for one in both:
        expected = torch.arange(5) * 10.0 + (1 - one.rank)
        assert torch.equal(read[one.rank], expected[:, None].expand(5, 8))
        assert int(one._flags.memory.max()) == 0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_nobody_passes_a_barrier_before_all_have_come(ranks: int, seed: int) -> None:
    """And a second one with the same flags holds those back that were faster."""
    everyone = members(ranks)
    came = torch.zeros(4, ranks)
    seen = torch.zeros(ranks, 4, ranks)
    for turn in range(4):
        for one in everyone:
            one.lane.copy(came[turn, one.rank :][:1], torch.ones(1))
            one.barrier("other")
            one.lane.copy(seen[one.rank, turn], came[turn])
    assert came.sum() == 0
    finish([one.lane.queue for one in everyone], seed)
    assert bool(seen.all())


def test_a_rank_alone_waits() -> None:
    first, _ = members(2)
    first.barrier("one")
    with pytest.raises(AssertionError, match="every lane waits"):
        finish([first.lane.queue], 0)
