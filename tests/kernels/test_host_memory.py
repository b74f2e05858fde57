from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dynaflow_dsl.kernels.host_memory import Layout, Slots, share_slots
from dynaflow_dsl.runtime.errors import RankError


class Meeting:
    """What ranks on threads tell each other."""

    def __init__(self, ranks: int) -> None:
        self.said: list[Any] = [None] * ranks
        self.barrier = threading.Barrier(ranks, timeout=30)

    def tell(self, rank: int) -> Callable[[Any], list[Any]]:
        def told(said: Any) -> list[Any]:
            self.said[rank] = said
            self.barrier.wait()
            found = list(self.said)
            self.barrier.wait()
            return found

        return told


@dataclass
class Pinning:
    """Devices that see memory where the host does."""

    refuses: str | None = None
    pinned: dict[int, int] = field(default_factory=dict)

    def register(self, address: int, size: int) -> int:
        if self.refuses is not None:
            raise RuntimeError(self.refuses)
        self.pinned[address] = size
        return address

    def unregister(self, address: int) -> None:
        del self.pinned[address]


def shared(folder: Path, pinnings: list[Pinning]) -> list[Slots | RankError]:
    """What each rank has of the memory, or its error."""
    meeting = Meeting(len(pinnings))

    def work(rank: int) -> Slots | RankError:
        layout = Layout(len(pinnings), 4096)
        try:
            return share_slots(
                "tp", rank, layout, meeting.tell(rank), pinnings[rank], folder
            )
        except RankError as error:
            return error

    with ThreadPoolExecutor(len(pinnings)) as pool:
        return list(pool.map(work, range(len(pinnings))))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_ranks_have_the_same_memory(ranks: int, tmp_path: Path) -> None:
    pinnings = [Pinning() for _ in range(ranks)]
    found = shared(tmp_path, pinnings)
    assert list(tmp_path.iterdir()) == []
    for rank, slots in enumerate(found):
        assert isinstance(slots, Slots)
        assert pinnings[rank].pinned == {slots.address: slots.layout.size}
        assert int(slots.memory.max()) == 0
    for rank, slots in enumerate(found):
        assert isinstance(slots, Slots)
        slots.memory[slots.layout.place(rank, 1)] = rank + 1
    for slots in found:
        assert isinstance(slots, Slots)
        for rank in range(ranks):
            assert int(slots.memory[slots.layout.place(rank, 1)]) == rank + 1


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_rank_that_cannot_pin_it_stops_all(failing: int, tmp_path: Path) -> None:
    pinnings = [Pinning() for _ in range(3)]
    pinnings[failing] = Pinning(refuses="out of memory (error 2)")
    found = shared(tmp_path, pinnings)
    assert list(tmp_path.iterdir()) == []
    assert not any(one.pinned for one in pinnings)
    for one in found:
        assert isinstance(one, RankError)
        assert one.code == "DFS818"
        assert one.message == (
            "the ranks of the group 'tp' cannot share memory of the host: they need "
            f"1 MiB in {tmp_path}, and rank {failing} says: out of memory (error 2). "
            "Give a container more of it (`--shm-size`), or leave kernels that copy "
            "through it out of the schedule."
        )


def test_a_full_file_system_stops_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(handle: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    for one in shared(tmp_path, [Pinning(), Pinning()]):
        assert isinstance(one, RankError)
        assert "rank 0 says: [Errno 28] No space left" in one.message
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_stops_all(tmp_path: Path) -> None:
    for one in shared(tmp_path / "none", [Pinning(), Pinning()]):
        assert isinstance(one, RankError)
        assert "rank 0 says: [Errno 2] No such file" in one.message
