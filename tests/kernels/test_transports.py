from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from dynaflow_dsl.kernels import lanes, peers, transports
from dynaflow_dsl.kernels.host import HostPeers
from dynaflow_dsl.kernels.symmetric import SymmetricPeers
from dynaflow_dsl.kernels.transports import Seat, kind_of
from dynaflow_dsl.runtime import bind_group, driver
from dynaflow_dsl.runtime.groups import release_group, stand_in_group

SEATS = [Seat("here", f"device {k}", False) for k in range(3)]


def chosen(seats: list[Seat], reaching: list[bool]) -> set[Any]:
    """What each rank finds; `reaching` says of each whether it reaches all others."""
    return {
        kind_of(seats, lambda device, k=k: reaching[k], lambda mine: reaching)
        for k in range(len(seats))
    }


def test_ranks_that_reach_each_other_use_each_others_memory() -> None:
    assert chosen(SEATS, [True, True, True]) == {SymmetricPeers}


def test_one_that_does_not_reach_the_others_sends_all_to_the_host() -> None:
    assert chosen(SEATS, [True, False, True]) == {HostPeers}


def test_ranks_that_nccl_keeps_apart_use_the_host() -> None:
    seats = [*SEATS[:2], replace(SEATS[2], apart=True)]
    assert chosen(seats, [True, True, True]) == {HostPeers}


def test_two_ranks_on_one_device_use_the_host() -> None:
    assert chosen([SEATS[0], SEATS[0]], [True, True]) == {HostPeers}


def test_ranks_of_two_machines_share_nothing() -> None:
    seats = [SEATS[0], replace(SEATS[1], machine="there")]
    assert chosen(seats, [True, True]) == {None}


@pytest.mark.parametrize(("value", "apart"), [("1", True), ("0", False), (None, False)])
def test_a_seat_says_what_nccl_is_told(
    monkeypatch: pytest.MonkeyPatch, value: str | None, apart: bool
) -> None:
    monkeypatch.setattr(transports, "_name", str)
    monkeypatch.delenv("NCCL_P2P_DISABLE", raising=False)
    if value is not None:
        monkeypatch.setenv("NCCL_P2P_DISABLE", value)
    assert Seat.of(torch.device("cpu")).apart is apart
    assert Seat.of(torch.device("cpu")) == Seat.of(torch.device("cpu"))


def test_there_is_none_on_the_cpu() -> None:
    bind_group("tp", stand_in_group(2, 0))
    try:
        assert transports.transport_of("tp", torch.ones(1)) is None
        assert transports.peers_of("tp", torch.ones(1)) is None
    finally:
        release_group("tp")


@dataclass
class Usage:
    over: bool | str

    def is_over(self) -> bool:
        if isinstance(self.over, str):
            raise RuntimeError(self.over)
        return self.over


@dataclass
class Found:
    usage: Usage
    closed: list[str] = field(default_factory=list)

    def close(self) -> None:
        self.closed.append("closed")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    found: list[Any] = []
    monkeypatch.setattr(transports, "_KEPT", found)
    monkeypatch.setattr(transports, "_FOUND", {})
    yield found
    for role in ("tp", "ep"):
        release_group(role)


def test_a_role_that_is_bound_anew_gives_its_memory_back(kept: list[Any]) -> None:
    device = torch.device("cuda", 0)
    mine, other = Found(Usage(True)), Found(Usage(True))
    bind_group("tp", stand_in_group(2, 0))
    bind_group("ep", stand_in_group(2, 0))
    transports._FOUND.update({("tp", device): mine, ("ep", device): other})
    bind_group("tp", stand_in_group(2, 1))
    assert list(transports._FOUND.values()) == [other]
    assert (mine.closed, other.closed, kept) == (["closed"], [], [])
    release_group("ep")
    assert transports._FOUND == {}
    assert other.closed == ["closed"]


@pytest.mark.parametrize("over", [False, "the device has failed"])
def test_memory_that_somebody_may_use_is_kept(
    kept: list[Any], over: bool | str
) -> None:
    device = torch.device("cuda", 0)
    mine = Found(Usage(over))
    bind_group("tp", stand_in_group(2, 0))
    transports._FOUND.update({("tp", device): mine, ("tp", torch.device("cpu")): None})
    release_group("tp")
    assert transports._FOUND == {}
    assert kept == [mine]
    assert mine.closed == []
    # Until nobody does, when the next role is released.
    mine.usage.over = True
    bind_group("tp", stand_in_group(2, 0))
    release_group("tp")
    assert kept == []
    assert mine.closed == ["closed"]


@dataclass
class Driver:
    """What a driver is called with."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    result: int = 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, *(getattr(a, "value", a) for a in arguments)))
            return self.result

        return call

    def cuGetErrorString(self, result: int, place: Any) -> int:  # noqa: N802
        place._obj.value = b"operation not supported"
        return 0


@dataclass
class Stream:
    cuda_stream: int = 7


def test_flags_are_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Driver()
    monkeypatch.setattr(driver, "driver", lambda: made)
    lane = lanes.StreamLane(Stream())
    lane.do(*driver.awaited(0, 4096))
    lane.do(*driver.written(1, 4096, 8192))
    name = "cuStreamBatchMemOp_v2"
    wait, write = made.calls
    assert (wait[:3], write[:3]) == ((name, 7, 1), (name, 7, 2))
    # As the driver lays them out: 48 bytes, an address at the second eight of them.
    numbers = struct.unpack("IxxxxQIxxxxIxxxxQQ" * 3, bytes(wait[3]) + bytes(write[3]))
    assert [numbers[k : k + 4] for k in (0, 6, 12)] == [
        (1, 4096, 0, 1),
        (2, 4096, 1, 0),
        (2, 8192, 1, 0),
    ]


def test_what_the_driver_refuses_has_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (driver, lanes):
        monkeypatch.setattr(module, "driver", lambda: Driver(result=801))
    said = r"cuStreamBatchMemOp_v2 of the CUDA driver: operation not supported \("
    with pytest.raises(RuntimeError, match=said):
        lanes.StreamLane(Stream()).do(*driver.awaited(0, 1))
    with pytest.raises(RuntimeError, match=r"cuMemHostRegister .*\(error 801\)"):
        lanes.DriverPinning().register(0, 1)


def test_memory_of_a_captured_graph_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    usage = peers.Usage(torch.device("cpu"))
    usage.note()
    assert not usage.is_over()
