"""What is left out of a graph is the memory of what is read instead."""

from __future__ import annotations

from typing import Any

import torch

from dynaflow_dsl.graph.snapshot import dump_snapshot, parse_snapshot
from dynaflow_dsl.trace import trace
from tests.trace.specs import graph_of, module, operation, refusal, spec_of


def test_a_view_of_dropout_that_is_off_is_one_of_its_input() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        weights = torch.softmax(x, -1, dtype=torch.float32).to(x.dtype)
        return self.dropout(weights).view(x.shape[0] * 4, -1) * 2

    model = module(forward, dropout=torch.nn.Dropout(0.5))
    made = trace(spec_of(model, ("batch", 4, 8)), "target", {}).unwrap()
    (graph,) = made.graphs
    (weights,) = operation(graph, "softmax.int").results
    seen = operation(graph, "view")
    assert weights is not None
    assert seen.results[0] is not None
    assert seen.view
    assert seen.results[0].storage == weights.storage
    assert parse_snapshot(dump_snapshot(made), "m.graph.json").unwrap() == made


def test_a_write_behind_dropout_that_is_off_is_kept() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        made = x * 2
        self.dropout(made).view(-1).add_(1)
        return made

    graph = graph_of(module(forward, dropout=torch.nn.Dropout(0.5)), ("batch", 4))
    (made,) = operation(graph, "mul.Tensor").results
    (seen,) = operation(graph, "view").results
    assert made is not None
    assert seen is not None
    assert seen.storage == made.storage
    assert operation(graph, "add_.Tensor").writes == (seen.name,)


def test_a_constant_is_not_written_behind_its_copy() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        made = torch.tensor([1.0, 2.0])
        made.add_(1)
        return x + made

    said = refusal(spec_of(module(forward), ("batch", 2)))
    assert "writes into a constant that was made while tracing" in said.message
