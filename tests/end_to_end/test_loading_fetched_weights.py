"""Loading modules that fetch weights: where tensors lie, what moves, what replays."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dynaflow_dsl.runtime import Executor, LoadError
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.end_to_end.building import Built, build
from tests.runtime.fake_graphs import FakeGraphs

TEXT = """dfs 1

schedule ahead:
    stream copy
    capture batch at [2, 4]

    each layer in .layers.*:
        part fetch on copy = weights in .
        part body = .

        order:
            fetch | prev.body
"""


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.head = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def rows(batch: int, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(batch, 4)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    torch.manual_seed(0)
    spec = TraceSpec(
        model=Stack().eval(),
        entries={"main": Entry(lambda sizes: (rows(sizes["batch"]),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 64)},
    )
    return build(spec, TEXT, tmp_path_factory.mktemp("loading"))


def loaded(built: Built, model: nn.Module | None = None, **options: Any) -> Executor:
    model = model if model is not None else built.spec.model
    step: Any = built.module.load(model, compile=False, **options)
    assert isinstance(step, Executor)
    return step


def test_the_model_stays_as_it_is(built: Built) -> None:
    model = built.spec.model
    before = {name: one.data_ptr() for name, one in model.named_parameters()}
    step = loaded(built)
    assert {name: one.data_ptr() for name, one in model.named_parameters()} == before
    assert torch.equal(step(rows(3)), model(rows(3)))


def test_a_model_may_go_when_it_is_loaded(built: Built) -> None:
    model = copy.deepcopy(built.spec.model)
    expected = model(rows(3))
    step = loaded(built, model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("layers."):
                parameter.zero_()
    assert torch.equal(step(rows(3)), expected)


def test_a_placed_model_is_read_where_it_lies(built: Built) -> None:
    model = copy.deepcopy(built.spec.model)
    unused = model.unused.weight.data_ptr()
    step = loaded(built, model, place=True)
    assert torch.equal(step(rows(3)), model(rows(3)))
    assert model.unused.weight.data_ptr() == unused
    with torch.no_grad():
        model.layers[2].weight.mul_(2.0)
    assert torch.equal(step(rows(3)), model(rows(3)))
    assert torch.equal(loaded(built, model)(rows(3)), model(rows(3)))


def test_a_wrong_model_is_not_moved(built: Built) -> None:
    model = copy.deepcopy(built.spec.model)
    model.head = nn.Linear(4, 5).eval()
    before = {name: one.data_ptr() for name, one in model.named_parameters()}
    with pytest.raises(LoadError, match=r"`head.bias` is float32.5. instead"):
        loaded(built, model, place=True)
    assert {name: one.data_ptr() for name, one in model.named_parameters()} == before


def test_weights_without_memory_are_refused(built: Built) -> None:
    model = copy.deepcopy(built.spec.model)
    model.layers[1].to("meta")
    for placing in (False, True):
        with pytest.raises(
            LoadError, match=r"`layers.1.bias` is on `meta`, wh"
        ) as found:
            loaded(built, model, place=placing)
        assert found.value.code == "DFS801"


def test_replays_bring_the_weights_anew(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeGraphs()
    monkeypatch.setattr("dynaflow_dsl.runtime.load.make_graphs", lambda *_: backend)
    step = loaded(built)
    model = built.spec.model
    # All buffers: what a graph does not fill again, it would read as it was left.
    call: Any = step.fetch  # type: ignore[attr-defined]
    buffers = [one.args[0] for one in call.__closure__[0].cell_contents]
    for number, batch in enumerate((4, 2, 4, 2, 3, 4)):
        for buffer in buffers:
            buffer.fill_(255)
        given = rows(batch, number)
        assert torch.equal(step(given), model(given)), number
    assert len(backend.graphs) == 2
    assert len(backend.replays) >= 3
    report = step.report()
    assert len(report.sizes) == 2
    assert report.fetched.count == 2


def test_loaded_in_inference_mode_and_run_out_of_it(built: Built) -> None:
    model = copy.deepcopy(built.spec.model)
    expected = model(rows(3))
    for placing in (False, True):
        with torch.inference_mode():
            step = loaded(built, model, place=placing)
            assert torch.equal(step(rows(3)), expected)
        assert torch.equal(step(rows(3)), expected)


def test_what_is_not_fetched_has_to_be_on_the_device(built: Built) -> None:
    model = copy.deepcopy(built.spec.model)
    model.head.to("meta")
    with pytest.raises(LoadError, match=r"`head.bias` is on `meta`"):
        loaded(built, model)
