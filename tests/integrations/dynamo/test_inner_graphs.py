"""Calls that take a graph of their own, which no part can hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from dynaflow_dsl.diagnostics import DiagnosticError
from tests.integrations.dynamo.compiling import compiled
from tests.integrations.dynamo.models import HALVES, Stack, write


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
