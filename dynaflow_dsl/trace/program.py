"""What converting one exported program needs at hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

import torch

from dynaflow_dsl.graph.model import Value
from dynaflow_dsl.trace.contexts import Context
from dynaflow_dsl.trace.export import Node
from dynaflow_dsl.trace.failures import refuse
from dynaflow_dsl.trace.lines import line_of_stack
from dynaflow_dsl.trace.model import TraceSpec
from dynaflow_dsl.trace.normalise import Normalised
from dynaflow_dsl.trace.sizes import SizeReader, UnnamedSize


@dataclass(slots=True)
class Program:
    """What converting one program needs at hand; storages are numbered as they come."""

    spec: TraceSpec
    entry: str
    normalised: Normalised
    sizes: SizeReader
    contexts: tuple[Context, ...]
    names: dict[Node, str] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)
    count: int = 0
    constants: set[int] = field(default_factory=set)

    def value(self, node: Node, tensor: torch.Tensor, source: int | None) -> Value:
        """The value of a node; `source` is a storage that it may share at run time."""
        key = self.normalised.storage(tensor)
        if key not in self.storages:
            shared = self.storages.get(source) if source is not None else None
            self.storages[key] = self.count if shared is None else shared
            self.count += shared is None
        try:
            traced = self.sizes.type(tensor)
        except UnnamedSize as size:
            refuse_size(str(size), node)
        return Value(self.names.setdefault(node, node.name), traced, self.storages[key])

    def name(self, node: Node) -> str:
        """Name of the value that a read of `node` stands for."""
        node = self.normalised.value(node)
        return self.names.get(node, node.name)


def refuse_size(size: str, node: Node) -> NoReturn:
    """Stop at a size that no graph can hold."""
    source = line_of_stack(node.meta.get("stack_trace"))
    if re.search(r"\bz?u[uf]?\d+\b", size):
        refuse(
            f"{node.target} has a size or a number that depends on the values of a "
            "tensor",
            source,
            helps=("use tensors whose shapes follow from the inputs' shapes",),
        )
    refuse(
        f"{node.target} has the size {size}; a size must be a number times a "
        "product of named dimensions",
        source,
        helps=_ways_out(size, node),
    )


def _ways_out(size: str, node: Node) -> tuple[str, ...]:
    if str(node.target).startswith("aten.arange"):
        return ("count down with 'torch.arange(n).flip(0)'",)
    # Functions are written like names, and a bracket follows.
    names = dict.fromkeys(re.findall(r"\b[A-Za-z_]\w*\b(?!\()", size))
    listed = " and ".join(names)
    return (
        f"have a graph for each size of {listed}: leave it out of 'dims', and under "
        "torch.compile call torch._dynamo.mark_static(tensor, axis) for its axes",
    )


def without_root(path: str, root: str, outside: str | None = None) -> str:
    """A path without the adapter's prefix; `outside` replaces paths of the adapter."""
    if not root:
        return path
    if path == root:
        return ""
    if path.startswith(f"{root}."):
        return path[len(root) + 1 :]
    return path if outside is None else outside
