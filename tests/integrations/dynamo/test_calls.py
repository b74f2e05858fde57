"""Calling an executor in place of a graph."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from dynaflow_dsl.integrations.dynamo import addresses
from dynaflow_dsl.integrations.dynamo.addresses import addresses_of
from dynaflow_dsl.integrations.dynamo.calls import Bindings, GraphCall
from dynaflow_dsl.integrations.dynamo.model import Interface, Output
from dynaflow_dsl.integrations.dynamo.weights import stand_in, structure_of
from tests.integrations.dynamo.models import Stack, evaluated


class Recorder:
    """Binds steps that return their arguments, and remembers the weights weakly."""

    def __init__(self) -> None:
        self.bound: list[Any] = []

    def __call__(self, weights: Mapping[str, torch.Tensor]) -> Any:
        held = tuple(weights.values())
        self.bound.append(weakref.ref(held[0]))

        def step(*arguments: Any) -> Any:
            return (arguments[0], held[0])

        return step


def call(recorder: Recorder) -> GraphCall:
    interface = Interface(2, (0,), ((1, "w"),), (Output(result=0), Output(result=1)))
    return GraphCall(interface, Bindings(recorder))


def test_a_step_is_bound_once() -> None:
    recorder = Recorder()
    run, weight = call(recorder), torch.ones(2)
    for _ in range(3):
        run(torch.ones(1), weight)
    assert len(recorder.bound) == 1


def test_layers_that_take_turns_are_bound_once_each() -> None:
    recorder = Recorder()
    run, layers = call(recorder), [torch.full((2,), float(k)) for k in range(20)]
    for _ in range(2):
        for layer in layers:
            _, read = run(torch.ones(1), layer)
            assert torch.equal(read, layer)
    assert len(recorder.bound) == 20


@pytest.mark.parametrize("way", ["gone", "moved"])
def test_weights_that_were_replaced_are_let_go(way: str) -> None:
    recorder = Recorder()
    run, weight = call(recorder), torch.ones(2)
    run(torch.ones(1), weight)
    if way == "gone":
        weight = torch.zeros(2)
    else:
        weight.data = torch.zeros(2)
    _, read = run(torch.ones(1), weight)
    del read
    gc.collect()
    assert [each() is None for each in recorder.bound] == [True, False]


def test_addresses_are_compared_one_by_one_or_at_once() -> None:
    tensors = [torch.ones(2), torch.ones(2), torch.ones(2)]
    known = addresses_of(tensors, [0, 2])
    assert known[1] is None
    others = [tensors[0], torch.ones(2), tensors[2]]
    assert addresses._lie_at(others, known, [0, 2])
    others[2] = torch.ones(2)
    assert not addresses._lie_at(others, known, [0, 2])


def test_outputs_that_are_no_tensors() -> None:
    outputs = (Output(result=0), Output(value=None), Output(factor=3, axes=((0, 1),)))
    interface = Interface(1, (0,), (), outputs)
    run = GraphCall(interface, Bindings(lambda weights: lambda x: x))
    x = torch.ones(2, 5)
    assert list(run(x)) == [x, None, 15]


def test_a_structure_holds_what_it_is_given() -> None:
    model = Stack()
    model.layers[1].up.weight = model.layers[0].up.weight
    evaluated(model)
    one = torch.ones(16, 8)
    paths = ("layers.0.up.weight", "layers.2.up.weight")
    made = structure_of(model).holding(dict.fromkeys(paths, one))
    tensors = dict(made.named_buffers(remove_duplicate=False))
    assert tensors["layers.0.up.weight"] is tensors["layers.1.up.weight"]
    # One tensor for what the model holds apart, in two objects.
    assert tensors["layers.0.up.weight"] is not tensors["layers.2.up.weight"]
    assert tensors["layers.2.up.weight"].data_ptr() == one.data_ptr()
    assert tensors["layers.3.up.weight"].is_meta
    assert [p for p, _ in made.named_modules()] == [p for p, _ in model.named_modules()]


def test_a_stand_in_has_tensors_beside_those_of_the_model() -> None:
    model = evaluated(Stack())
    made = stand_in(model, {"layers.0.handle": torch.tensor(3)})
    tensors = dict(made.named_buffers())
    assert tensors["layers.0.handle"] == 3
    weight = model.layers[0].up.weight
    assert tensors["layers.0.up.weight"].data_ptr() == weight.data_ptr()
    assert type(made).__name__ == "Stack"
    assert not made.training
