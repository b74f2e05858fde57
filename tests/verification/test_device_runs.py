"""The runs of a device, with a stand-in for its clock and its graphs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

from dynaflow_dsl.verification.device_runs import Eager, Replayed
from dynaflow_dsl.verification.results import run_on_copies
from dynaflow_dsl.verification.state import ModelState, same_bits
from dynaflow_dsl.verification.stress import stress
from tests.runtime.fake_clock import FakeDevice, fake_cuda
from tests.runtime.toy_model import Toy, make_arguments


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    fake_cuda(monkeypatch)
    made = FakeDevice()
    monkeypatch.setattr("dynaflow_dsl.verification.device_runs.DeviceClock", made.clock)
    return made


def load(module: ModuleType, model: Toy) -> Any:
    return lambda streams: module.load(model, compile=False, streams=streams)


def test_eager_runs_start_alike_and_are_let_go_when_issued(
    halves: ModuleType, toy: Toy, device: FakeDevice
) -> None:
    arguments = make_arguments(4)
    before = [one.clone() for one in arguments[3]]
    way = Eager(load(halves, toy), arguments, ModelState(toy))
    expected = run_on_copies(
        halves.load(toy, compile=False), arguments, ModelState(toy)
    ).tensors

    def judge(tensors: Any) -> str | None:
        pairs = zip(tensors, expected, strict=True)
        return None if all(same_bits(*pair) for pair in pairs) else "differs"

    run = stress(way, 4, judge)
    assert run.failures == ()
    assert run.steps == len(way.steps) > 10
    assert all(wait > 0.0 for wait in device.starts)
    assert set(device.releases) == set(range(run.steps))
    # In order of issue, whatever the delays: that is what this stand-in does.
    assert run.both == 0
    for one, other in zip(arguments[3], before, strict=True):
        assert torch.equal(one, other)


def test_replays_read_fresh_inputs(
    halves: ModuleType, toy: Toy, device: FakeDevice
) -> None:
    arguments = make_arguments(4)
    way = Replayed(load(halves, toy), arguments, ModelState(toy))
    timed = way.run({0: 5.0})
    assert device.starts == [0.0]
    assert device.releases == {0: 5.0}
    assert len(timed.times) == len(way.steps)
    # The stand-in's replay computes nothing, so arguments are what they were set to.
    written = timed.tensors[1:]
    flat = [*arguments[:3], *arguments[3], *arguments[4]]
    for one, other in zip(written, flat, strict=True):
        assert torch.equal(one, other)
