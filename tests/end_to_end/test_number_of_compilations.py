"""The number of compilations does not depend on the number of layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.runtime import compile as compiling
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.end_to_end.building import Built, build


class Layer(nn.Module):
    """Two parts; every third layer runs another operation in its first."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.mix, self.mlp = nn.Linear(4, 4), nn.Linear(4, 4)
        self.third = number % 3 == 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.mix(x)
        x = x + (torch.tanh(mixed) if self.third else torch.relu(mixed))
        result: torch.Tensor = x + self.mlp(x)
        return result


class Deep(nn.Module):
    """Layers with something of nobody's between any two."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 4), nn.Linear(4, 4)
        self.layers = nn.ModuleList(Layer(number) for number in range(layers))
        self.between = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer, between in zip(self.layers, self.between, strict=True):
            x = layer(between(x))
        result: torch.Tensor = self.head(x)
        return result


CUT = """dfs 1

schedule deep:
    stream side

    split batch into 2 as half

    each layer in .layers.*:
        part mix on side = .mix
        part mlp = .mlp + rest

        stagger half by 1:
            mix
            mlp
"""
WHOLE = """dfs 1

schedule deep:
    part all = .layers.* + .between.* + .embed + .head

    order:
        all
"""


def compiled(
    text: str, layers: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Built, list[int]]:
    """The module, and the number of operations that each compilation was given."""
    folder = folder / str(layers)
    folder.mkdir()
    spec = TraceSpec(
        model=Deep(layers).eval(),
        entries={"run": Entry(lambda sizes: (torch.rand(sizes["batch"], 4),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, None)},
    )
    made = build(spec, text, folder)
    given: list[int] = []

    def compile_graph(graph: torch.fx.GraphModule, *_: Any) -> bytes:
        given.append(
            sum(isinstance(n.target, torch._ops.OpOverload) for n in graph.graph.nodes)
        )
        return b"an artifact"

    monkeypatch.setattr(compiling, "compile_graph", compile_graph)
    monkeypatch.setattr(compiling, "load_artifact", lambda content: lambda given: ())
    made.module.load(spec.model, cache=folder / "cache")
    return made, given


def test_as_many_at_96_layers_as_at_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_8, at_96 = (
        compiled(CUT, layers, tmp_path, monkeypatch)[1] for layers in (8, 96)
    )
    # What runs before and after the layers, between two, and two kinds of each part.
    assert at_8 == at_96
    assert len(at_8) <= 7


def test_a_part_of_all_layers_is_one_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, at_8), (many, at_96) = (
        compiled(WHOLE, layers, tmp_path, monkeypatch) for layers in (8, 96)
    )
    assert len(at_8) == len(at_96) == 1
    operations = 6
    assert at_96[0] - at_8[0] == operations * (96 - 8)
    # What is between two layers runs in the same loop; nothing follows the last.
    assert "    for i in range(95):" in many.compiled.text
