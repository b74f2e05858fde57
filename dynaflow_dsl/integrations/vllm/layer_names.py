"""Operators that take the name of a layer, with a tensor in the name's place.

An engine's operator finds its layer by name, and every layer has its own. A name in the
text of a part would make a part of each layer, compiled by itself; vLLM passes objects
(`LayerName`) for the same reason. Here a name is a tensor of one number, which a part
takes from its layer as it takes weights. For each operator that is used there is one of
the namespace `dynaflow_vllm` with the same schema but for that argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import GraphModule, Node

NAMESPACE = "dynaflow_vllm"

# What vLLM's own operators call the argument.
_ARGUMENT = "layer_name"
_TYPES = ("PyObject", "str")

_library: Any = None


class LayerTensors:
    """Tensors that stand for layers, and the layers that they stand for.

    A tensor is known by its memory, so that nothing waits for a device to read it, or
    else by the number in it.
    """

    __slots__ = ("_by_memory", "_names", "_tensors")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._tensors: dict[tuple[str, str], torch.Tensor] = {}
        self._by_memory: dict[int, str] = {}

    def tensor(self, name: str, device: torch.device) -> torch.Tensor:
        """The tensor for a layer on a device, the same for each call."""
        key = (name, str(device))
        if key not in self._tensors:
            made = torch.tensor(len(self._names), dtype=torch.int64, device=device)
            self._names.append(name)
            self._tensors[key] = made
            self._by_memory[made.data_ptr()] = name
        return self._tensors[key]

    def name(self, tensor: torch.Tensor) -> str:
        """The layer that a tensor stands for."""
        known = self._by_memory.get(tensor.data_ptr())
        return self._names[int(tensor)] if known is None else known


LAYERS = LayerTensors()


def with_tensors(graph: GraphModule) -> tuple[GraphModule, tuple[str, ...]]:
    """A copy of a graph whose operators take tensors for the names of layers.

    Names that the graph itself holds stay. Beside it the engine's operators that have
    twins in it, for `define_twins` in another process.
    """
    copied = torch.fx.Graph()
    known: dict[Node, Node] = {}
    output = copied.graph_copy(graph.graph, known)
    copied.output(output)
    replaced: dict[str, None] = {}
    for old, node in known.items():
        node.meta = dict(old.meta)
        operator = _overload(node.target) if node.op == "call_function" else None
        if operator is None or (position := _position(operator)) is None:
            continue
        given = dict(enumerate(node.args)) | dict(node.kwargs)
        if isinstance(given.get(position, given.get(_ARGUMENT)), Node):
            node.target = _twin(operator)
            replaced[operator._schema.name] = None
    return GraphModule(graph, copied), tuple(replaced)


def define_twins(operators: Iterable[str]) -> None:
    """Define the twins of operators of the engine, `namespace::name`."""
    for each in operators:
        namespace, _, name = each.partition("::")
        _twin(getattr(getattr(torch.ops, namespace), name).default)


def _overload(target: Any) -> torch._ops.OpOverload | None:
    if isinstance(target, torch._ops.OpOverloadPacket):
        target = target.default
    return target if isinstance(target, torch._ops.OpOverload) else None


def _position(operator: torch._ops.OpOverload) -> int | None:
    """Where an operator takes the name of a layer."""
    for position, argument in enumerate(operator._schema.arguments):
        if argument.name == _ARGUMENT and str(argument.type) in _TYPES:
            return position
    return None


def _twin(operator: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The operator of `dynaflow_vllm` for one of the engine's; defined once."""
    schema = operator._schema
    name = schema.name.partition("::")[2]
    packet = getattr(torch.ops, NAMESPACE)
    if not hasattr(packet, name):
        _define(name, operator)
    found: torch._ops.OpOverload = getattr(packet, name).default
    return found


def _define(name: str, operator: torch._ops.OpOverload) -> None:
    global _library
    if _library is None:
        _library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    pattern = rf"\b(?:{'|'.join(_TYPES)}) {_ARGUMENT}\b"
    text, count = re.subn(pattern, f"Tensor {_ARGUMENT}", str(operator._schema))
    position = _position(operator)
    assert count == 1, text
    assert position is not None
    # What the engine's operators take of a name differs with its settings.
    from vllm.utils.torch_utils import _encode_layer_name

    def run(*arguments: Any) -> Any:
        given = list(arguments)
        given[position] = _encode_layer_name(LAYERS.name(given[position]))
        return operator(*given)

    def fake(*arguments: Any) -> Any:
        given = list(arguments)
        # What a result looks like does not depend on the layer.
        given[position] = _encode_layer_name("")
        return operator(*given)

    _library.define(text.partition("::")[2])
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
