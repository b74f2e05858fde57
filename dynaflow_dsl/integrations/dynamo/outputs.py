"""Where each output of a Dynamo graph comes from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.fx import Node

from dynaflow_dsl.integrations.dynamo.inputs import traced_value
from dynaflow_dsl.integrations.dynamo.model import DynamoGraph, Inputs, Output
from dynaflow_dsl.trace.export import factor_size
from dynaflow_dsl.trace.failures import refuse
from dynaflow_dsl.trace.lines import line_of_stack


def read_outputs(graph: DynamoGraph, inputs: Inputs) -> tuple[Output, ...]:
    """All outputs; raises DiagnosticError for one that an executor cannot return."""
    *_, last = graph.module.graph.nodes
    places: dict[str, tuple[int, int]] = {}
    for item in inputs.steps:
        for axis, size in enumerate(item.shape):
            if isinstance(size, torch.SymInt):
                places.setdefault(str(size), (item.position, axis))
    (returned,) = last.args
    values = returned if isinstance(returned, list | tuple) else [returned]
    own = {
        id(traced): item.position
        for item in inputs.tensors
        if isinstance(traced := traced_value(graph, item.position), torch.Tensor)
    }
    return tuple(_output(k, value, places, own) for k, value in enumerate(values))


def _output(
    number: int,
    value: object,
    places: Mapping[str, tuple[int, int]],
    own: Mapping[int, int],
) -> Output:
    """One output; `own` are places of the model's tensors by what was traced."""
    if not isinstance(value, Node):
        return Output(value=value)
    traced = value.meta.get("example_value", value.meta.get("val"))
    if isinstance(traced, torch.Tensor):
        # What writes in place returns what it wrote.
        place = own.get(id(traced))
        return Output(result=number) if place is None else Output(given=place)
    if isinstance(traced, int | float | bool) or traced is None:
        return Output(value=traced)
    product = factor_size(traced) if isinstance(traced, torch.SymInt) else None
    if product is not None and all(symbol in places for symbol in product[1]):
        factor, symbols = product
        return Output(factor=factor, axes=tuple(places[each] for each in symbols))
    return refuse(
        f"the graph returns a number that is no size of an input ({traced})",
        line_of_stack(value.meta.get("stack_trace")),
        helps=("return a tensor, or compute the number outside of the model",),
    )
