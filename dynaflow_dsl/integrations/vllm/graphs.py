"""A graph as vLLM hands it to a backend, in the words of `integrations.dynamo`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from torch.fx import GraphModule

from dynaflow_dsl.integrations.dynamo.frames import names_of_inputs
from dynaflow_dsl.integrations.dynamo.inputs import read_inputs
from dynaflow_dsl.integrations.dynamo.model import DynamoGraph, Meaning
from dynaflow_dsl.integrations.dynamo.retrace import Retraced, retrace
from dynaflow_dsl.integrations.dynamo.sources import (
    Attribute,
    Owner,
    Scope,
    steps_of,
)
from dynaflow_dsl.integrations.vllm.layer_names import LAYERS, with_tensors
from dynaflow_dsl.trace.failures import refuse
from dynaflow_dsl.trace.model import Scalar

# The one dimension that the engine leaves open.
TOKENS = "tokens"

# Steps of Dynamo's names that say nothing of what a tensor is.
_PLUMBING = frozenset({"__closure__", "cell_contents", "_modules"})


@dataclass(frozen=True, slots=True)
class EngineGraph:
    """A graph of the engine, and which of its inputs are names of layers.

    `layers` are these names by the inputs' positions, and `operators` those of the
    engine that take one.
    """

    graph: DynamoGraph
    layers: Mapping[int, str]
    operators: tuple[str, ...]


def calling_model() -> torch.nn.Module | None:
    """The model whose call is being compiled; None outside of the engine."""
    from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper

    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, TorchCompileWithNoGuardsWrapper) and isinstance(
            owner, torch.nn.Module
        ):
            return owner
        frame = frame.f_back
    return None


def read_graph(
    graph: GraphModule, examples: list[Any], model: torch.nn.Module
) -> EngineGraph:
    """What the engine hands over, for a model on the device of its inputs."""
    from vllm.utils.torch_utils import LayerName

    sources = names_of_inputs(graph)
    scope = _scope(model)
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    layers: dict[int, str] = {}
    names: dict[str, str] = {}
    given = list(examples)
    device = device_of(examples)
    owner = Owner(model)
    for position, node in enumerate(placeholders):
        example = examples[position]
        if isinstance(example, LayerName):
            layers[position] = example.value
            given[position] = LAYERS.tensor(example.value, device)
            names[str(node.target)] = _layer_path(example.value, model, owner)
        elif isinstance(example, torch.Tensor) and _is_no_weight(
            example, sources[position], owner
        ):
            path = _tensor_path(sources[position], scope, owner)
            while path in names.values():
                path += "_"
            names[str(node.target)] = path
    rewritten, operators = with_tensors(graph)
    handed = DynamoGraph(
        rewritten,
        tuple(given),
        sources,
        scope,
        model,
        names,
    )
    return EngineGraph(handed, layers, operators)


def device_of(examples: Iterable[object]) -> torch.device:
    """The device that a graph runs on."""
    tensors = (each for each in examples if isinstance(each, torch.Tensor))
    return next((each.device for each in tensors), torch.device("cpu"))


def trace_graph(
    graph: DynamoGraph, most_tokens: int, facts: Mapping[str, Scalar]
) -> Retraced:
    """The traced model of a graph of the engine; raises DiagnosticError.

    Every size that the engine leaves open is the number of tokens, from one on: the
    engine calls its graphs with one token as well, whatever Dynamo assumed.
    """
    dims = {
        item.key: tuple(
            TOKENS if isinstance(size, torch.SymInt) else None for size in item.shape
        )
        for item in read_inputs(graph).steps
    }
    meaning = Meaning(dims=dims, facts=facts)
    found = retrace(graph, meaning, wanted=(TOKENS,)).unwrap()
    (traced,) = found.traced.graphs
    if [name for name, _, _ in traced.dimensions] != [TOKENS]:
        refuse("no input of the engine's graph has tokens: nothing can be scheduled")
    traced = replace(traced, dimensions=((TOKENS, 1, most_tokens),), context=True)
    return replace(found, traced=replace(found.traced, graphs=(traced,)))


def _scope(model: torch.nn.Module) -> Scope:
    """The variables of the model's `forward`, in order; only `self` is looked into."""
    names = inspect.signature(type(model).forward).parameters
    return Scope({name: model if name == "self" else None for name in names})


def _is_no_weight(tensor: torch.Tensor, source: str | None, owner: Owner) -> bool:
    """Whether a tensor is reached through the model, and is no weight of a module."""
    steps = steps_of(source) if source and source.startswith("L") else None
    held = bool(steps) and steps is not None and steps[0] == "self"
    return held and owner.tensor(tensor) is None


def _layer_path(name: str, model: torch.nn.Module, owner: Owner) -> str:
    """Where the name of a layer lies: in the layer's module, as if it were a weight."""
    config: Any = model.vllm_config
    layer = config.compilation_config.static_forward_context.get(name)
    path = owner.module(layer)
    if path is None:
        return f"layer_names.{_identifier(name)}"
    return f"{path}.layer_name"


def _tensor_path(source: str | None, scope: Scope, owner: Owner) -> str:
    """A path for a tensor that a module holds otherwise than as a weight.

    Packed weights of a CPU are such: a handle in the closure of the layer's function.
    """
    steps = steps_of(source or "") or ()
    path, rest = "", steps[1:]
    for count in range(1, len(steps)):
        found = owner.module(scope.follow("L", steps[:count]))
        if found is not None:
            path, rest = found, steps[count:]
    name = "_".join(_words(rest)) or "tensor"
    return f"{path}.{name}" if path else name


def _words(steps: tuple[Any, ...]) -> Iterator[str]:
    previous: object = None
    for step in steps:
        word = step.name if isinstance(step, Attribute) else str(step)
        closed = isinstance(previous, Attribute) and previous.name == "__closure__"
        if word not in _PLUMBING and not closed:
            yield _identifier(word)
        previous = step


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text)
