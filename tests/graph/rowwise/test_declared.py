"""Operators whose rows somebody declares, on tensors that share memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dynaflow_dsl.graph.rowwise import check_rows
from dynaflow_dsl.operations import plugins
from dynaflow_dsl.operations.rows import OperationRows
from tests.trace.specs import graph_of, module


@torch.library.custom_op("rows_beside::turn", mutates_args=("q", "k"))
def turn(q: torch.Tensor, k: torch.Tensor) -> None:
    """Write two tensors, each row by what stands in the same row of both."""
    both = q.sum(-1, keepdim=True) + k.sum(-1, keepdim=True)
    q += both
    k -= both


ROWS = OperationRows("rows_beside.turn", arguments=(0, 0))


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    plugins.provide("test", (ROWS,))
    yield
    plugins.provide("test", ())


def refusals(forward: Any) -> list[str]:
    graph = graph_of(module(forward, w=torch.ones(8, 4)), ("batch", 4))
    check = check_rows(graph, "batch", [each.name for each in graph.operations])
    return [refusal.reason for refusal in check.refusals]


def test_columns_of_one_tensor_are_beside_each_other() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        both = torch.nn.functional.linear(x, self.w)
        q, k = both.split([4, 4], dim=-1)
        torch.ops.rows_beside.turn(q, k)
        return q * k

    assert refusals(forward) == []


def test_a_tensor_turned_around_has_other_rows() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        both = torch.nn.functional.linear(x, self.w)
        torch.ops.rows_beside.turn(both, both.t())
        return both

    (reason,) = refusals(forward)
    assert reason == (
        "argument 1 of rows_beside.turn.default is not split along axis 0, as is "
        "declared"
    )


def test_half_rows_are_no_rows() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        both = torch.nn.functional.linear(x, self.w)
        torch.ops.rows_beside.turn(both, both.view(-1, 4))
        return both

    (reason,) = refusals(forward)
    assert reason == "rows_beside.turn.default is given different numbers of rows"


def test_rows_that_lie_apart_are_refused() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        # Row b of the second is in rows b and batch + b of the whole.
        whole = torch.cat([x, x]).view(2, -1, 4)
        torch.ops.rows_beside.turn(whole[0], whole.sum(0))
        return whole

    assert refusals(forward)
