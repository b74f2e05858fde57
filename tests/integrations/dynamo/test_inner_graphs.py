"""Calls that take a graph of their own: those that only call it, and the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.integrations import report
from tests.integrations.dynamo.compiling import compiled
from tests.integrations.dynamo.models import HALVES, Stack, evaluated, write


class Attending(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x.view(-1, 1, 2, 4)
        found = flex_attention(heads, heads, heads)
        assert isinstance(found, torch.Tensor)
        return super().forward(found.flatten(1))


class Choosing(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cond(x.sum() > 0, torch.relu, torch.neg, (x,)))


@pytest.mark.parametrize(
    ("kind", "called", "way_out"),
    [
        (Attending, "flex_attention", "scaled_dot_product_attention"),
        (Choosing, "cond", "torch.where"),
    ],
)
def test_each_has_a_way_out_of_its_own(
    tmp_path: Path, kind: type[Stack], called: str, way_out: str
) -> None:
    step = compiled(kind().eval(), write(tmp_path, HALVES, "halves.dfs"))
    with pytest.raises(DiagnosticError) as refused:
        step(torch.randn(4, 8))
    (found,) = refused.value.diagnostics
    assert found.code == "DFS111"
    assert f"calls another graph inside its own ({called})" in found.message
    (said,) = found.helps
    assert way_out in said


def _pair(layer: torch.nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return layer(x), x + 1


class Checkpointed(Stack):
    """Its layers keep nothing for a backward pass, and return two tensors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x, more = checkpoint(_pair, layer, x, use_reentrant=False)
            x = x + more
        return x


class Nested(Stack):
    """Checkpoints in a checkpoint, which read a tensor that is no weight."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = torch.full((8,), 0.5)

    def _inner(self, layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        constant = torch.tensor([1.0, 2.0])
        return layer(x) + self.offset * constant.sum()

    def _outer(self, layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self._inner, layer, x * 2, use_reentrant=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(self._outer, layer, x, use_reentrant=False)
        return x


@pytest.mark.parametrize("kind", [Checkpointed, Nested])
def test_graphs_that_are_only_called(tmp_path: Path, kind: type[Stack]) -> None:
    model = evaluated(kind())
    step = compiled(model, write(tmp_path))
    for rows in (4, 6):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
    (graph,) = report().graphs
    layers = tuple(f"layers.{number}" for number in range(4))
    assert graph.parts == (("expand", layers), ("reduce", layers))


def test_what_does_not_fit_is_left_to_inductor_whole(tmp_path: Path) -> None:
    """It gets the graph that Dynamo made, with the graphs in it."""
    model = evaluated(Checkpointed())
    wrong = write(tmp_path, HALVES.replace(".up", ".upp"))
    step = compiled(model, wrong, strict=False)
    x = torch.randn(4, 8)
    with pytest.warns(UserWarning, match="DFS201"):
        torch.testing.assert_close(step(x), model(x))


class Casting(Stack):
    """Its forward is in a context of autocast."""

    def __init__(self, *contexts: Callable[[], torch.autocast]) -> None:
        super().__init__()
        self.contexts = contexts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outer, inner = self.contexts
        with outer():
            x = self.layers[0](x)
            with inner():
                x = self.layers[1](x)
            x = self.layers[2](x)
        return self.layers[3](x)


def _off() -> torch.autocast:
    return torch.autocast("cpu", enabled=False)


def _on() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


def test_autocast_that_is_off_changes_nothing(tmp_path: Path) -> None:
    model = evaluated(Casting(_off, _off))
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    (graph,) = report().graphs
    assert graph.module is not None


@pytest.mark.parametrize("contexts", [(_on, _off), (_off, _on)])
def test_autocast_that_casts_is_refused(tmp_path: Path, contexts: Any) -> None:
    step = compiled(evaluated(Casting(*contexts)), write(tmp_path))
    with pytest.raises(DiagnosticError) as refused:
        step(torch.randn(4, 8))
    (found,) = refused.value.diagnostics
    assert found.code == "DFS111"
    assert found.message == "the model switches torch.autocast on while it runs"
    assert found.helps[0].endswith("one with enabled=False may stay")
    assert not torch.is_autocast_enabled("cpu")
