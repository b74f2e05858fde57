"""Ranks on threads that share memory of the host, and devices that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dynaflow_dsl.kernels import host
from dynaflow_dsl.kernels.host import HostPeers
from dynaflow_dsl.kernels.host_memory import share_slots
from dynaflow_dsl.kernels.peers import Usage
from tests.kernels.devices import FakeLane, finish
from tests.kernels.test_host_memory import Meeting, Pinning

CPU = torch.device("cpu")


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[FakeLane]]:
    """All lanes that peers make, of a device that is made up."""
    made: list[FakeLane] = []

    def lane(stream: object) -> FakeLane:
        made.append(FakeLane())
        return made[-1]

    stream = SimpleNamespace(cuda_stream=1, query=lambda: True)
    monkeypatch.setattr(host, "StreamLane", lane)
    monkeypatch.setattr(host, "setting_up", lambda role, device: nullcontext())
    monkeypatch.setattr(host, "share_slots", partial(share_slots, folder=tmp_path))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    yield made
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ranks", [2, 3])
def test_memory_grows_with_what_is_sent(
    lanes: list[FakeLane], monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    meeting, pinning = Meeting(ranks), Pinning()
    monkeypatch.setattr(host, "DriverPinning", lambda: pinning)
    monkeypatch.setattr(host, "WHOLE", 1 << 16)
    peers = [HostPeers("tp", CPU, k, ranks, meeting.tell(k)) for k in range(ranks)]
    sizes = (1000, 40_000, 1001)
    given = [[torch.randn(size) for size in sizes] for _ in range(ranks)]

    def work(rank: int) -> list[list[torch.Tensor]]:
        return [peers[rank].collectives.addends(one, 1) for one in given[rank]]

    with ThreadPoolExecutor(ranks) as pool:
        found = list(pool.map(work, range(ranks)))
    finish([lane.queue for lane in lanes], 5)
    for made in found:
        for k, one in enumerate(made):
            torch.testing.assert_close(sum(one), sum(each[k] for each in given))
    # One for small messages, one for large ones, and nothing for the last call.
    assert len(pinning.pinned) == 2 * ranks
    for each in peers:
        assert each.usage.is_over()
        each.close()
    assert pinning.pinned == {}


def test_who_may_still_be_at_work() -> None:
    usage = Usage(CPU)
    assert usage.is_over()
    usage._streams[1] = SimpleNamespace(query=lambda: True)
    assert usage.is_over()
    usage._streams[2] = SimpleNamespace(query=lambda: False)
    assert not usage.is_over()
    usage._streams.clear()
    usage.captured = True
    assert not usage.is_over()
