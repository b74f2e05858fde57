"""Dynamo shares graphs between weights, and executors are bound to theirs."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import torch
from torch import nn

from dynaflow_dsl.integrations import report
from tests.integrations.dynamo.compiling import compiled
from tests.integrations.dynamo.models import (
    Stack,
    evaluated,
    write,
)


def test_a_model_is_not_kept(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    step(torch.randn(4, 8))
    alive = weakref.ref(model), weakref.ref(model.layers[0].up.weight)
    del step, model
    torch._dynamo.reset()
    gc.collect()
    assert [each() for each in alive] == [None, None]


def test_weights_that_are_replaced_are_seen(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    step(x)
    with torch.no_grad():
        model.layers[1].up.weight.mul_(2.0)
    torch.testing.assert_close(step(x), model(x))
    model.layers[2].down.weight = nn.Parameter(torch.randn(8, 16))
    torch.testing.assert_close(step(x), model(x))
    model.layers[2].up.weight.data = torch.randn(16, 8)
    torch.testing.assert_close(step(x), model(x))
    model.load_state_dict(evaluated(Stack()).state_dict(), assign=True)
    torch.testing.assert_close(step(x), model(x))


def test_two_models_of_one_class(tmp_path: Path) -> None:
    schedule = write(tmp_path)
    one, other = evaluated(Stack()), evaluated(Stack())
    with torch.no_grad():
        other.layers[0].up.weight.mul_(3.0)
    steps = [compiled(model, schedule) for model in (one, other)]
    x = torch.randn(4, 8)
    for _ in range(2):
        for step, model in zip(steps, (one, other), strict=True):
            torch.testing.assert_close(step(x), model(x))


def test_weights_that_are_tied_stay_tied(tmp_path: Path) -> None:
    model = Stack()
    model.layers[1].up.weight = model.layers[0].up.weight
    evaluated(model)
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    model.layers[0].up.weight = nn.Parameter(torch.randn(16, 8))
    model.layers[1].up.weight = model.layers[0].up.weight
    torch.testing.assert_close(step(x), model(x))


def test_one_graph_for_all_layers(tmp_path: Path) -> None:
    """What Dynamo cannot trace in a loop leaves it the layers, which share a graph."""

    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
                torch._dynamo.graph_break()
            return x

    model = evaluated(Model())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    for _ in range(2):
        torch.testing.assert_close(step(x), model(x))
    modules = [each.module for each in report().graphs]
    assert modules[0] == "executors/halves.py"
    assert set(modules[1:]) <= {None}
