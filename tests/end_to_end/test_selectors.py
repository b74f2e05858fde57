"""Selectors of every class, from a user's model to a module that runs and verifies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from dynaflow_dsl import mark
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.bind.graphs import held
from tests.end_to_end.building import Built, build, run_verify


def mix(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * weight


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class Layer(nn.Module):
    """A mixer, then a sum over ranks and experts or, in the first layer, none."""

    def __init__(self, number: int, *, summed: bool) -> None:
        super().__init__()
        self.norm, self.mixer = nn.LayerNorm(6), nn.Linear(6, 6)
        self.summed = summed
        if number:
            self.experts = Experts()
        else:
            self.dense = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, normed: torch.Tensor) -> torch.Tensor:
        mixed = mix(self.mixer(normed), self.mixer.weight[0])
        if self.summed:
            dist.all_reduce(mixed)
        with mark("gate"):
            gate = torch.sigmoid(x * 0.5)
        y = x + mixed
        experts = self.experts if hasattr(self, "experts") else self.dense
        return y + gate * experts(y)


class Stack(nn.Module):
    def __init__(self, *, summed: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(n, summed=summed) for n in range(4))
        self.last = nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, layer.norm(x))
        return self.last(x)


def made(text: str, folder: Path, *, summed: bool = False) -> Built:
    torch.manual_seed(0)
    spec = TraceSpec(
        model=Stack(summed=summed).eval(),
        entries={"run": Entry(lambda sizes: (torch.randn(sizes["batch"], 6),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 64)},
    )
    return build(spec, text, folder)


def passes(built: Built) -> None:
    (report,) = run_verify(built)
    assert report.ok, str(report)


MARKS = f"""dfs 1

schedule marks:
    stream side

    split batch into 2 as half

    each layer in .layers.* having .experts:
        part gate on side = "mark:gate" in .
        part mix = .norm + .mixer + ("function:{__name__}.mix" in .)
        part experts = .experts + (own in .) - gate - mix

        order:
            gate[0] | mix[0]
            gate[1] | mix[1]
            experts
"""


def test_marks_functions_and_having(tmp_path: Path) -> None:
    built = made(MARKS, tmp_path)
    (binding,) = built.compiled.bindings
    assert [item.path for item in binding.sections[0].iterations] == [
        "layers.1",
        "layers.2",
        "layers.3",
    ]
    assert held(binding, "gate")[0] == "mul_4 sigmoid_1"
    assert "layer_norm_4" in held(binding, "after")[0]
    passes(built)


OR = """dfs 1

schedule sides:
    stream side

    split batch into 2 as half

    each layer in .layers.*:
        part mix on side = .mixer + ("aten.tanh*" in .)
        part join = (.experts or .dense) + (next.norm or root.last) + (own in .) - mix

        stagger half by 1:
            mix
            join
"""


def test_or_and_patterns(tmp_path: Path) -> None:
    built = made(OR, tmp_path)
    (binding,) = built.compiled.bindings
    joins = held(binding, "join")
    assert [text.split().count("relu") for text in joins] == [0, 1, 0, 0]
    assert "layer_norm_1" in joins[0]
    assert "layer_norm_4" in joins[3]
    assert binding.after is None
    passes(built)


SUM = """dfs 1

schedule sums:
    stream comm

    split batch into 2 as half

    each layer in .layers.*:
        part sum on comm = ("function:*.mix" in .) + (all_reduce in .)
        part rest_of_it = .norm + .mixer
        part join = rest + (own in .) - sum

        order:
            rest_of_it
            sum
            join
"""


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of two ranks that sends nothing."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_a_collective_travels_with_its_wait(tmp_path: Path) -> None:
    built = made(SUM, tmp_path, summed=True)
    (binding,) = built.compiled.bindings
    assert held(binding, "sum")[0].split() == [
        *("select", "tanh", "mul", "all_reduce", "wait_tensor", "copy_")
    ]
    passes(built)
