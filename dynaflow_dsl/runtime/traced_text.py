"""The text of a part's function as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer
from torch.overrides import TorchFunctionMode

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.variants import Literal, Variant
from dynaflow_dsl.runtime.weights import record


@dataclass(frozen=True, slots=True)
class Traced:
    """A part function as a graph.

    Its inputs are the weights, then the arguments that are not literals, then
    `constants`: tensors that the text holds. `outputs` says what the function returns.
    """

    graph: GraphModule
    constants: tuple[torch.Tensor, ...]
    outputs: str  # "none", "tensor" or "tuple"


def trace_text(variant: Variant, part: str) -> Traced:
    """The graph of a variant's function, made by calling it with proxies.

    Raises LoadError (DFS805) for text that needs values while it is traced.
    """
    graph = Graph()
    tracer = _Tracer(graph)
    weights = {
        name: Proxy(graph.placeholder(_placeholder(name, k)), tracer)
        for k, (name, _) in enumerate(variant.weights)
    }
    arguments = [
        layout.value
        if isinstance(layout, Literal)
        else Proxy(graph.placeholder(f"input_{position}"), tracer)
        for position, layout in enumerate(variant.arguments)
    ]
    try:
        with torch.no_grad(), _OperatorCalls(tracer):
            returned = variant.function(record(weights), *arguments)
        listed: tuple[Any, ...]
        if returned is None:
            outputs, listed = "none", ()
        elif isinstance(returned, tuple | list):
            outputs, listed = "tuple", tuple(returned)
        else:
            outputs, listed = "tensor", (returned,)
        graph.output(tuple(tracer.create_arg(value) for value in listed))
    except torch.fx.proxy.TraceError as error:
        raise LoadError(
            "DFS805",
            f"the part `{part}` cannot be compiled, since its function "
            f"`{variant.function.__name__}` decides by a tensor or a size ({error}).",
        ) from error
    for node in graph.nodes:
        for written in written_arguments(node):
            if written in tracer.constants:
                raise LoadError(
                    "DFS805",
                    f"the part `{part}` writes into a constant of the module "
                    f"(`{node.target}`), which would change the next step.",
                )
    return Traced(
        GraphModule(torch.nn.Module(), graph), tuple(tracer.constants.values()), outputs
    )


def _placeholder(weight: str, position: int) -> str:
    """A name for a weight that no other one has; those of loops have dots in theirs."""
    if "." not in weight:
        return f"w_{weight}"
    return f"w{position}_{weight.rpartition('.')[2]}"


def written_arguments(node: Node) -> list[Node]:
    """The arguments that a node writes in place, by its operator's schema."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return []
    found = []
    for position, argument in enumerate(target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = (
            node.args[position]
            if position < len(node.args)
            else node.kwargs.get(argument.name)
        )
        listed = given if isinstance(given, list | tuple) else [given]
        found += [value for value in listed if isinstance(value, Node)]
    return found


class _Tracer(GraphAppendingTracer):
    """Turns tensors that the text holds into inputs of the graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.constants: dict[Node, torch.Tensor] = {}

    def create_arg(self, a: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            return super().create_arg(a)
        for node, known in self.constants.items():
            if known is a:
                return node
        last = [node for node in self.graph.nodes if node.op == "placeholder"][-1:]
        place = (
            self.graph.inserting_after(last[0])
            if last
            else self.graph.inserting_before(next(iter(self.graph.nodes), None))
        )
        with place:
            node = self.graph.placeholder(f"constant_{len(self.constants)}")
        self.constants[node] = a
        return node


class _OperatorCalls(TorchFunctionMode):
    """Records every operator call, also one that no traced value goes into.

    Such a call (a mask filled with zeros) would otherwise run once, while tracing, and
    what a step then writes into its result would stay for the next one.
    """

    def __init__(self, tracer: _Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            return self._tracer.create_proxy("call_function", func, args, named)
        return func(*args, **named)
