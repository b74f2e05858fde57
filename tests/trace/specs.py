from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.graph.model import Graph, Operation
from dynaflow_dsl.trace import Entry, TraceSpec, trace

Forward = Callable[..., Any]


def module(forward: Forward, **attributes: Any) -> torch.nn.Module:
    """A module with this forward (its first parameter is the module) in eval mode.

    Plain tensors among the attributes become buffers.
    """
    made = type("Model", (torch.nn.Module,), {"forward": forward})()
    for name, value in attributes.items():
        if type(value) is torch.Tensor:
            made.register_buffer(name, value)
        else:
            setattr(made, name, value)
    return made.eval()


def spec_of(
    model: torch.nn.Module,
    *shapes: tuple[int | str, ...],
    dtypes: Mapping[int, torch.dtype] | None = None,
    **options: Any,
) -> TraceSpec:
    """One entry `run`, one tensor for each shape; a name in a shape is a dimension."""

    def arguments(sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.rand([sizes.get(size, size) for size in shape]).to(  # type: ignore[call-overload]
                (dtypes or {}).get(index, torch.float32)
            )
            for index, shape in enumerate(shapes)
        )

    parameters = list(inspect.signature(model.forward).parameters)
    named = {size for shape in shapes for size in shape if isinstance(size, str)}
    fields: dict[str, Any] = {
        "model": model,
        "entries": {"run": Entry(arguments)},
        "dims": {
            name: tuple(size if isinstance(size, str) else None for size in shape)
            for name, shape in zip(parameters, shapes, strict=False)
        },
        "dimensions": dict.fromkeys(sorted(named), (1, None)),
    }
    return TraceSpec(**{**fields, **options})


def graph_of(
    model: torch.nn.Module, *shapes: tuple[int | str, ...], **options: Any
) -> Graph:
    """The graph of a spec's one entry."""
    return trace(spec_of(model, *shapes, **options), "target", {}).unwrap().graphs[0]


def refusal(spec: TraceSpec) -> Diagnostic:
    """The one diagnostic of a target that cannot be traced."""
    result = trace(spec, "target", {})
    assert result.value is None
    (diagnostic,) = result.diagnostics
    assert diagnostic.code == "DFS111"
    return diagnostic


def operators(graph: Graph) -> list[str]:
    """Names of operators in order, without `aten.` and the default overload."""
    return [
        operation.operator.removeprefix("aten.").removesuffix(".default")
        for operation in graph.operations
    ]


def operation(graph: Graph, name: str) -> Operation:
    """The first operation of this operator, by its name without `aten.`."""
    return graph.operations[operators(graph).index(name)]
