from __future__ import annotations

import torch
from torch import nn

from dynaflow_dsl.verification.state import ModelState


class Counting(nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.register_buffer("other", torch.full((2,), float("nan")))
        self.register_buffer("empty", None)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Counting()


def test_what_was_written_is_told_and_put_back() -> None:
    model = Outer()
    state = ModelState(model)
    assert state.effects() == {}
    kept = model.inner.count
    model.inner.count.add_(3)
    effects = state.effects()
    assert {label: one.tolist() for label, one in effects.items()} == {
        "buffer inner.count": [3.0, 3.0]
    }
    state.restore()
    assert model.inner.count is kept
    assert model.inner.count.tolist() == [0.0, 0.0]
    assert effects["buffer inner.count"].tolist() == [3.0, 3.0]


def test_another_tensor_in_the_place_of_a_buffer() -> None:
    model = Outer()
    state, kept = ModelState(model), model.inner.count
    model.inner.count = torch.ones(3)
    assert state.effects()["buffer inner.count"].tolist() == [1.0, 1.0, 1.0]
    state.restore()
    assert model.inner.count is kept


def test_runs_that_left_a_buffer_alone_are_completed() -> None:
    state = ModelState(Outer())
    other = {"buffer inner.count": torch.ones(2)}
    assert state.completed({}, other)["buffer inner.count"].tolist() == [0.0, 0.0]
    assert state.completed(other, {}) == other
