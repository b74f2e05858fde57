"""Calls that copy at the traced size and only alias at the smallest one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import torch

from dynaflow_dsl.graph.model import Size
from dynaflow_dsl.trace.export import Node, OpOverload, has_tag, storage_of
from dynaflow_dsl.trace.normalise import base_name
from dynaflow_dsl.trace.sizes import SizeReader

# They return their input, but their schemas and fake tensors say new memory.
_RETURNS_ITS_INPUT = frozenset({"_c10d_functional.wait_tensor"})


def may_alias(
    node: Node,
    operator: OpOverload,
    sizes: SizeReader,
    storage: Callable[[torch.Tensor], int],
    smallest: Mapping[str, int],
) -> int | None:
    """The storage that a call's result may share at run time though it did not here.

    `reshape` and `contiguous` copy only when they must: with a batch of one there may
    be nothing to copy. The call is repeated on meta tensors with every dimension at its
    `smallest` size. The storage is the first argument's, as `storage` tells it; None
    when the result is new memory there too.
    """
    if not _unsure(operator):
        return None
    first = node.args[0] if node.args else None
    tensor = first.meta.get("val") if isinstance(first, Node) else None
    if not isinstance(tensor, torch.Tensor):
        return None
    if storage(tensor) == storage(node.meta["val"]):
        return None
    if base_name(operator) in _RETURNS_ITS_INPUT:
        return storage(tensor)
    if not any(isinstance(size, torch.SymInt) for size in tensor.shape):
        return None

    def number(size: Size) -> int:
        return size.factor * prod(smallest[name] for name in size.dimensions)

    def concrete(value: object) -> object:
        if isinstance(value, Node):
            value = value.meta["val"]
        if isinstance(value, torch.SymInt):
            return number(sizes.size(value))
        if isinstance(value, torch.Tensor):
            traced = sizes.type(value)
            return torch.empty_strided(
                tuple(map(number, traced.shape)),
                tuple(map(number, traced.strides)),
                dtype=value.dtype,
                device="meta",
            )
        if isinstance(value, list | tuple):
            return [concrete(element) for element in value]
        return torch.device("meta") if isinstance(value, torch.device) else value

    source = concrete(first)
    rest = [concrete(value) for value in node.args[1:]]
    keywords = {name: concrete(value) for name, value in node.kwargs.items()}
    result = operator(source, *rest, **keywords)
    assert isinstance(source, torch.Tensor)
    same = isinstance(result, torch.Tensor) and storage_of(result) == storage_of(source)
    return storage(tensor) if same else None


def _unsure(operator: OpOverload) -> bool:
    """Whether a schema leaves open that the result is its input's memory."""
    if base_name(operator) in _RETURNS_ITS_INPUT:
        return True
    results = operator._schema.returns
    alias = results[0].alias_info if results else None
    if operator.namespace != "aten" or (alias is not None and alias.is_write):
        return False
    return alias is not None or has_tag(operator, "maybe_aliasing_or_mutating")
