from __future__ import annotations

from types import ModuleType

import pytest
import torch

from dynaflow_dsl.runtime import Capture, Executor
from dynaflow_dsl.verification.captured import STEPS, Captured
from tests.runtime.fake_graphs import IN_PLACE, FakeGraphs, loaded
from tests.runtime.toy_model import Toy, make_arguments, make_toy
from tests.runtime.write_toy_maps import EXECUTORS
from tests.verification.mutations import import_module


@pytest.fixture
def toy() -> Toy:
    return make_toy()


@pytest.fixture
def halves() -> ModuleType:
    return import_module(EXECUTORS / "toy_halves.py")


@pytest.fixture
def backend() -> FakeGraphs:
    return FakeGraphs()


@pytest.fixture
def step(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch, backend: FakeGraphs
) -> Executor:
    capture = Capture({"batch": (4,)}, in_place=IN_PLACE)
    return loaded(halves, toy, monkeypatch, backend, capture)


def test_every_run_has_other_inputs_and_is_replayed(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    restored: list[int] = []
    captured = Captured(step, lambda: restored.append(len(backend.replays)))
    for _ in range(3):
        arguments, same = make_arguments(4), make_arguments(4)
        for one, other in zip(arguments, same, strict=True):
            if isinstance(other, torch.Tensor):
                other.copy_(one)
            else:
                for left, right in zip(other, one, strict=True):
                    left.copy_(right)
        with torch.no_grad():
            expected = toy(*same)
        torch.testing.assert_close(captured(*arguments), expected)
        for listed in (3, 4):
            for left, right in zip(arguments[listed], same[listed], strict=True):
                torch.testing.assert_close(left, right)
    assert len(backend.graphs) == 1
    assert len(backend.replays) == 3 * STEPS - 1
    assert len(restored) == 3 * (STEPS - 1)
    assert captured.refused == {}


def test_a_size_that_cannot_be_captured_is_told(
    step: Executor, backend: FakeGraphs
) -> None:
    backend.free = 0
    captured = Captured(step, lambda: None)
    with pytest.warns(RuntimeWarning, match="are free"):
        captured(*make_arguments(4))
    assert list(captured.refused) == ["batch = 4"]
