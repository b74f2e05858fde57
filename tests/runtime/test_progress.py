"""What a device writes of its progress, with a driver that the test holds."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import progress
from dynaflow_dsl.runtime.progress import DeviceProgress


class Machine:
    """Streams whose writes are done when `run` says so; graphs keep theirs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream = 0
        self.capturing = False
        self.queues: dict[int, list[tuple[int, int]]] = {}
        self.graph: list[tuple[int, int]] = []
        self.memory: list[torch.Tensor] = []
        zeros = torch.zeros

        def pinned(*given: Any, pin_memory: bool = False, **named: Any) -> torch.Tensor:
            return zeros(*given, **named)

        monkeypatch.setattr(torch, "zeros", pinned)
        monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
        monkeypatch.setattr(
            torch.cuda, "is_current_stream_capturing", lambda: self.capturing
        )
        monkeypatch.setattr(
            torch._C,
            "_cuda_getCurrentRawStream",
            lambda index: self.stream,
            raising=False,
        )
        monkeypatch.setattr(progress, "device_pointer", lambda address: address)
        monkeypatch.setattr(progress, "write_value", self.write)

    def write(self, stream: int, address: int, value: int) -> None:
        if self.capturing:
            self.graph.append((address, value))
        else:
            self.queues.setdefault(stream, []).append((address, value))

    def run(self, stream: int, count: int | None = None) -> None:
        """Work off a queue, or the first writes of it."""
        queue = self.queues[stream]
        for address, value in queue[:count]:
            ctypes.c_uint32.from_address(address).value = value
        del queue[:count]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(progress, "_LEFT", {})
    return Machine(monkeypatch)


def made() -> DeviceProgress:
    return DeviceProgress(torch.device("cuda", 0))


def test_it_says_which_collective_each_stream_has_come_to(machine: Machine) -> None:
    device = made()
    machine.run(0)
    for stream, number in ((5, 1), (5, 2), (9, 3)):
        machine.stream = stream
        device.begun(number)
    assert device.standing() == [0, 0]
    machine.run(5, 1)
    machine.run(9)
    assert device.standing() == [1, 3]
    machine.run(5)
    assert device.standing() == [2, 3]


def test_a_mark_is_done_when_its_stream_has_come_there(machine: Machine) -> None:
    device = made()
    machine.run(0)
    device.begun(7)
    first = device.mark()
    second = device.mark()
    machine.stream = 9
    other = device.mark()
    machine.run(9)
    assert (first(), second(), other()) == (False, False, True)
    machine.run(0, 1)
    assert device.standing() == [7]
    machine.run(0, 2)
    assert (first(), second()) == (True, False)
    # What an earlier step began is not where a later one stands.
    assert device.standing() == [0]
    machine.run(0)
    assert second()


def test_numbers_come_again_after_the_last(machine: Machine) -> None:
    device = made()
    machine.run(0)
    device._marks[0] = (1 << 32) - 2
    device._rows[0] = 0
    last, first = device.mark(), device.mark()
    machine.run(0, 1)
    assert (last(), first()) == (True, False)
    machine.run(0)
    assert (last(), first()) == (True, True)


def test_a_graph_writes_its_numbers_in_each_replay(machine: Machine) -> None:
    device = made()
    machine.run(0)
    machine.capturing = True
    device.begun(4)
    assert device.mark()()  # whoever captures replays it when he likes
    machine.capturing = False
    assert len(machine.graph) == 1
    for _ in range(2):
        machine.queues[0] += machine.graph
        mark = device.mark()
        machine.run(0, 1)
        assert device.standing() == [4]
        assert not mark()
        machine.run(0)
        assert device.standing() == [0]
        assert mark()


def test_collectives_may_leave_no_trace(machine: Machine) -> None:
    device = DeviceProgress(torch.device("cuda", 0), collectives=False)
    machine.run(0)
    device.begun(7)
    mark = device.mark()
    assert device.standing() == []
    assert len(machine.queues[0]) == 1
    machine.run(0)
    assert mark()


def test_more_streams_than_there_are_places_for_are_not_watched(
    machine: Machine,
) -> None:
    device = made()
    for stream in range(600):
        machine.stream = stream
        device.begun(stream + 1)
    assert device.mark()()
    assert len(device.standing()) == 512


def test_a_driver_that_cannot_write_is_known_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("cuStreamWriteValue32_v2 of the CUDA driver: not supported")

    monkeypatch.setattr(progress, "write_value", refuse)
    with pytest.raises(RuntimeError, match="not supported"):
        made()


def addresses(count: int) -> list[int]:
    """Where the memory of some lies that are made one after the other."""
    return [made()._place for _ in range(count)]


def test_memory_goes_from_one_load_to_the_next(machine: Machine) -> None:
    device = made()
    place = device._place
    other = made()
    assert other._place != place
    device.begun(7)
    device.mark()
    machine.run(0)
    del device
    again = made()
    assert again._place == place
    assert again.standing() == []
    # Nothing of what was there is taken for a mark of the new one.
    mark = again.mark()
    assert not mark()
    del again, mark, other
    machine.run(0)
    assert len(set(addresses(20))) == 2


def test_memory_that_the_device_may_write_yet_is_not_used_again(
    machine: Machine,
) -> None:
    device = made()
    place = device._place
    device.begun(7)
    device.mark()
    del device
    assert place not in addresses(2)
    machine.run(0)
    assert place in [one._place for one in (made(), made())]


def test_memory_in_a_step_that_broke_off_is_not_used_again(machine: Machine) -> None:
    device = made()
    place = device._place
    device.begun(7)
    machine.run(0)
    del device
    assert place not in addresses(2)


def test_memory_that_a_graph_of_somebody_else_has_is_not_used_again(
    machine: Machine,
) -> None:
    device = made()
    place = device._place
    machine.capturing = True
    device.begun(4)
    device.mark()
    machine.capturing = False
    device.mark()
    machine.run(0)
    del device
    assert place not in addresses(2)
