"""What captured sizes will take, told before anything has run."""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import Executor
from dynaflow_dsl.runtime.live_memory import LiveMemory
from tests.runtime.fake_graphs import FakeGraphs, loaded
from tests.runtime.toy_model import Toy, make_arguments

FLOATS = 4


@pytest.fixture
def step(halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Executor:
    return loaded(halves, toy, monkeypatch, FakeGraphs(free=10**9))


@pytest.mark.parametrize("batch", [2, 4])
def test_the_bound_is_what_the_text_takes(step: Executor, batch: int) -> None:
    arguments = make_arguments(batch)
    memory = LiveMemory()
    with torch.no_grad(), memory:
        result = step.step(*arguments)
    assert memory.peak >= result.nbytes
    assert step.report().expected[f"batch = {batch}"] == memory.peak


def test_the_report_tells_before_a_step(step: Executor) -> None:
    report = step.report()
    assert report.sizes == ()
    assert report.free == 10**9
    small, large = report.expected["batch = 2"], report.expected["batch = 4"]
    assert 0 < small < large
    lines = str(report).splitlines()
    assert f"  batch = 4: not captured yet, takes {large / 1e6:.1f} MB at most" in lines
    assert lines[-1] == (
        f"  the pool they share grows to {large / 1e6:.1f} MB at most, 1000.0 MB are "
        "free"
    )
    # A size that was captured is measured instead.
    step(*make_arguments(4))
    assert step.report().expected == {"batch = 2": small}


def test_loading_tells_the_log(
    halves: ModuleType,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="dynaflow_dsl.runtime"):
        loaded(halves, toy, monkeypatch, FakeGraphs())
    assert "batch = 4: not captured yet, takes" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="dynaflow_dsl.runtime"):
        halves.load(toy, compile=False, capture=False)
    assert caplog.text == ""


def test_what_fake_tensors_cannot_run_is_not_known(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any) -> Any:
        raise NotImplementedError("no fake implementation")

    monkeypatch.setattr(halves, "mlp", unknown)
    step = loaded(halves, toy, monkeypatch, FakeGraphs())
    report = step.report()
    assert report.waiting == ("batch = 2", "batch = 4")
    assert report.expected == {}
    assert "at most" not in str(report)


def test_memory_is_counted_while_it_is_alive() -> None:
    given = torch.ones(10)
    with LiveMemory() as memory:
        first = given + 1
        view = first[:5]
        del first
        second = view * 2
        assert memory.live == (10 + 5) * FLOATS
        del view
        third = second + 1
        assert memory.live == (5 + 5) * FLOATS
        with memory.apart() as taken:
            (third.repeat(4) + 1).sum()
        assert taken == [(20 + 20) * FLOATS]
        memory.take(1000)
        memory.forget(third)
        assert memory.live == 5 * FLOATS
    assert memory.peak == (5 + 5) * FLOATS + 1000
