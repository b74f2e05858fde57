"""A graph of Dynamo as the graph that `trace` makes: the same model, the same data.

Dynamo writes down calls of `torch` functions; what is compiled here are the ATen
operations below them. So its graph is run once more under the tracer, as if it were the
model's code: module paths, stack traces and marks come from its nodes, everything else
(sizes, in-place writes, what torch does by itself) is found as for any model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torch.fx.traceback import preserve_node_meta

from dynaflow_dsl.diagnostics import DiagnosticError, Result
from dynaflow_dsl.graph.model import Graph, TracedModel
from dynaflow_dsl.integrations.dynamo.contexts import ContextTable
from dynaflow_dsl.integrations.dynamo.dimensions import Dimensions, name_dimensions
from dynaflow_dsl.integrations.dynamo.inputs import read_inputs
from dynaflow_dsl.integrations.dynamo.model import (
    DynamoGraph,
    Inputs,
    Interface,
    Meaning,
    Output,
    StepInput,
    interface_of,
)
from dynaflow_dsl.integrations.dynamo.names import refuse_option, similar
from dynaflow_dsl.integrations.dynamo.outputs import read_outputs
from dynaflow_dsl.integrations.dynamo.replay import ReplayInterpreter, tensor_at
from dynaflow_dsl.integrations.dynamo.sources import Owner
from dynaflow_dsl.integrations.dynamo.weights import stand_in
from dynaflow_dsl.trace.model import Entry, TraceSpec
from dynaflow_dsl.trace.tracing import Captured, trace

CAPTURED_BY = "dynamo"

# Where the model is in the module that is traced.
_ROOT = "model"


@dataclass(frozen=True, slots=True)
class Retraced:
    """A Dynamo graph as a traced model of one entry, and how to call it in its place.

    `spec` is what was traced, and `interface` how an executor of it is called.
    """

    traced: TracedModel
    spec: TraceSpec
    dimensions: Dimensions
    interface: Interface


# An entry's name, or who gives one for the sizes that Dynamo fixed.
EntryName: TypeAlias = "str | Callable[[Mapping[str, int]], str]"


def retrace(
    graph: DynamoGraph,
    meaning: Meaning,
    entry: EntryName = "forward",
    wanted: Collection[str] = (),
    whole: bool = True,
) -> Result[Retraced]:
    """The traced model of a Dynamo graph.

    `wanted` are the dimensions that the schedule speaks of. A graph that is not the
    `whole` model has only the modules that run in it. Whatever cannot be held in a
    graph is a DFS111 diagnostic, and options that do not fit it are DFS820.
    """
    try:
        return Result(_retrace(graph, meaning, entry, wanted, whole))
    except DiagnosticError as error:
        return Result(None, error.diagnostics)


def _retrace(
    graph: DynamoGraph,
    meaning: Meaning,
    entry: EntryName,
    wanted: Collection[str],
    whole: bool,
) -> Retraced:
    inputs = read_inputs(graph)
    _check_names(meaning, inputs)
    dimensions = name_dimensions(inputs.steps, meaning, wanted)
    outputs = read_outputs(graph, inputs)
    name = entry if isinstance(entry, str) else entry(dimensions.fixed)
    model = _model(graph, inputs)
    table = ContextTable()
    replayed = _annotated(graph, table)
    spec = TraceSpec(
        model=model,
        adapter=lambda model: _Replay(model, replayed, inputs, outputs),
        root=_ROOT,
        entries={name: Entry(_examples(inputs.steps, dimensions), dimensions.fixed)},
        dims=dimensions.dims,
        dimensions=dimensions.bounds,
        persistent=meaning.persistent,
        disjoint=meaning.disjoint,
        facts=meaning.facts,
        device=_device(graph, inputs),
        dtype=_dtype(graph.model),
    )
    captured = Captured(CAPTURED_BY, table.contexts())
    traced = trace(spec, "", {}, captured).unwrap()
    if not whole:
        graphs = tuple(_with_running_modules(each) for each in traced.graphs)
        traced = replace(traced, graphs=graphs)
    return Retraced(
        traced,
        spec,
        dimensions,
        interface_of(inputs, outputs, _written(traced.graphs)),
    )


def _check_names(meaning: Meaning, inputs: Inputs) -> None:
    known = list(dict.fromkeys(item.argument for item in inputs.steps))
    tables = {"persistent": meaning.persistent, "disjoint": meaning.disjoint}
    for table, names in tables.items():
        for name in names:
            if name not in known:
                refuse_option(
                    f"the option '{table}' names '{name}', and the inputs of this "
                    f"graph are {', '.join(known) or 'none'}",
                    *similar(name, known),
                )


def _model(graph: DynamoGraph, inputs: Inputs) -> torch.nn.Module:
    """The model, with all tensors that the graph takes from it."""
    if not graph.names:
        return graph.model
    given = {item.path: graph.examples[item.position] for item in inputs.tensors}
    return stand_in(graph.model, given)


def _annotated(graph: DynamoGraph, table: ContextTable) -> GraphModule:
    """A copy of Dynamo's graph whose nodes say where they stand in the user's model.

    The original stays as it is: other compilers may get it afterwards.
    """
    copied = torch.fx.Graph()
    known: dict[Node, Node] = {}
    output = copied.graph_copy(graph.module.graph, known)
    copied.output(output)
    owner = Owner(graph.model)
    home = _home(graph, owner)
    for node, new in known.items():
        path = _module(node, graph, owner)
        path = home if path is None else path
        new.meta = {
            "nn_module_stack": {"": (f"{_ROOT}.{path}" if path else _ROOT, "")},
            "stack_trace": table.stack(node),
        }
    return GraphModule(graph.module, copied)


def _home(graph: DynamoGraph, owner: Owner) -> str:
    """The module whose function was compiled: the model, or one of its layers."""
    for value in graph.scope.local.values():
        path = owner.module(value)
        if path is not None:
            return path
    return ""


def running_modules(graph: DynamoGraph) -> frozenset[str]:
    """The paths of the modules in which calls of a graph ran."""
    owner = Owner(graph.model)
    home = _home(graph, owner)
    nodes = (node for node in graph.module.graph.nodes if node.op.startswith("call"))
    paths = [_module(node, graph, owner) for node in nodes]
    return frozenset(home if path is None else path for path in paths)


def _module(node: Node, graph: DynamoGraph, owner: Owner) -> str | None:
    """The path of the innermost module that a node ran in, None outside of all."""
    for source, _ in reversed(list((node.meta.get("nn_module_stack") or {}).values())):
        path = owner.module_at(graph.scope, source.partition("@")[0])
        if path is not None:
            return path
    return None


class _Replay(torch.nn.Module):
    """A Dynamo graph as a module that takes the tensors of a step.

    Weights are read from `model`, so that they are traced as its own.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        graph: GraphModule,
        inputs: Inputs,
        outputs: Iterable[Output],
    ) -> None:
        super().__init__()
        self.model = model
        # In a tuple: the graph's modules are none of the model's.
        self._graph = (graph,)
        self._inputs = inputs
        self._returned = [each.result for each in outputs if each.result is not None]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = dict.fromkeys(item.argument for item in inputs.steps)

        def forward(*arguments: Any) -> Any:
            return self._run(arguments)

        forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind) for name in names]
        )
        self.forward = forward

    def _run(self, arguments: tuple[Any, ...]) -> Any:
        given: dict[int, Any] = {}
        flat = [
            tensor
            for argument in arguments
            for tensor in (
                argument if isinstance(argument, list | tuple) else [argument]
            )
        ]
        for item, tensor in zip(self._inputs.steps, flat, strict=True):
            given[item.position] = tensor
        for weight in self._inputs.tensors:
            given[weight.position] = tensor_at(self.model, weight.path)
        for number in self._inputs.numbers:
            given[number.position] = number.value
        for size in self._inputs.sizes:
            given[size.position] = given[size.tensor].shape[size.axis]
        (graph,) = self._graph
        with preserve_node_meta():
            returned = ReplayInterpreter(graph, self.model).run(
                *(given.get(position) for position in range(self._inputs.count))
            )
        results = [returned[number] for number in self._returned]
        return results[0] if len(results) == 1 else tuple(results)


def _examples(
    steps: Iterable[StepInput], dimensions: Dimensions
) -> Callable[[Mapping[str, int]], tuple[Any, ...]]:
    """Arguments without memory: they are traced as if they were on the device."""

    def make(sizes: Mapping[str, int]) -> tuple[Any, ...]:
        arguments: dict[str, Any] = {}
        for item in steps:
            axes = dimensions.dims[item.key]
            shape = [
                int(size) if name is None else sizes[name]
                for name, size in zip(axes, item.shape, strict=True)
            ]
            made = torch.empty(shape, dtype=item.tensor.dtype, device="meta")
            if item.index is None:
                arguments[item.argument] = made
            else:
                arguments.setdefault(item.argument, []).append(made)
        return tuple(arguments.values())

    return make


def _device(graph: DynamoGraph, inputs: Inputs) -> str:
    tensors = [*graph.model.parameters(), *graph.model.buffers()]
    tensors += [item.tensor for item in inputs.steps]
    kinds = [tensor.device.type for tensor in tensors if tensor.device.type != "meta"]
    return kinds[0] if kinds else "cpu"


def _dtype(model: torch.nn.Module) -> torch.dtype:
    floating = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(floating, torch.get_default_dtype())


def _written(graphs: Iterable[Graph]) -> frozenset[str]:
    """The inputs whose memory some operation writes."""
    found: set[str] = set()
    for graph in graphs:
        values = [item.value for item in graph.inputs]
        values += [v for op in graph.operations for v in op.results if v is not None]
        storages = {value.name: value.storage for value in values}
        written = {storages[name] for op in graph.operations for name in op.writes}
        found |= {i.name for i in graph.inputs if i.value.storage in written}
    return frozenset(found)


def _with_running_modules(graph: Graph) -> Graph:
    """Without the modules of which nothing runs in a graph."""
    running = {operation.module for operation in graph.operations}
    kept = {
        path
        for path in graph.modules
        if any(each == path or each.startswith(f"{path}.") for each in running)
    }
    modules = tuple(path for path in graph.modules if path in kept or not path)
    return replace(graph, modules=modules)
