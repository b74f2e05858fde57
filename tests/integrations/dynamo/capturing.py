"""Graphs of Dynamo, as a backend gets them, without compiling them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dynaflow_dsl.diagnostics import Result
from dynaflow_dsl.integrations.dynamo.frames import (
    compiled_model,
    current_frame,
    names_of_inputs,
)
from dynaflow_dsl.integrations.dynamo.model import DynamoGraph, Meaning
from dynaflow_dsl.integrations.dynamo.retrace import Retraced, retrace


def retraced(
    function: Callable[..., Any],
    *arguments: Any,
    meaning: Meaning | None = None,
    entry: str = "forward",
    wanted: tuple[str, ...] = ("batch",),
    names: dict[str, str] | None = None,
) -> Result[Retraced]:
    """The traced model of the only graph of a function."""
    found: list[Result[Retraced]] = []

    def backend(graph: torch.fx.GraphModule, examples: list[Any]) -> Any:
        frame = current_frame()
        assert frame is not None
        sources = names_of_inputs(graph)
        model = compiled_model(frame.scope, sources)
        assert model is not None
        handed = DynamoGraph(
            graph, tuple(examples), sources, frame.scope, model, names or {}
        )
        found.append(retrace(handed, meaning or Meaning(), entry, wanted))
        return graph.forward

    torch.compile(function, backend=backend, fullgraph=True)(*arguments)
    (result,) = found
    return result


def open_batch(*tensors: torch.Tensor) -> None:
    """Leave the first axis of tensors open, as users do."""
    for tensor in tensors:
        torch._dynamo.mark_dynamic(tensor, 0)
