"""A graph of Dynamo as a backend gets it, and what its inputs are to a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynaflow_dsl.integrations.dynamo.sources import Scope
from dynaflow_dsl.trace.model import Persistent, Scalar


@dataclass(frozen=True, slots=True)
class DynamoGraph:
    """What `torch.compile` hands to a backend.

    `examples` are the inputs of the call that is being compiled, real or fake, one for
    each placeholder of `module`, and `sources` their names in the words of Dynamo, None
    where they are not known. `scope` are the variables that those names begin with.
    `model` is the model that schedules speak of: the compiled function may be that of
    one of its layers.
    """

    module: GraphModule
    examples: tuple[Any, ...]
    sources: tuple[str | None, ...]
    scope: Scope
    model: torch.nn.Module

    @property
    def placeholders(self) -> list[Node]:
        """The inputs' nodes."""
        return [node for node in self.module.graph.nodes if node.op == "placeholder"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the inputs of a graph mean; see `TraceSpec`, which has the same fields.

    `dims` names the axes of inputs, `dimensions` holds bounds that are narrower than
    those that Dynamo found. An axis with a name whose size Dynamo fixed gives a fixed
    size of that name.
    """

    dims: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    dimensions: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    persistent: Mapping[str, Persistent] = field(default_factory=dict)
    disjoint: tuple[str, ...] = ()
    facts: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepInput:
    """A tensor that is given in every step.

    `position` is its place among the graph's inputs. `argument` is the name of the
    executor's argument, and `index` its place in it where that is a list. `tensor` has
    the sizes that Dynamo gave it, of which some may be symbols.
    """

    position: int
    argument: str
    index: int | None
    tensor: torch.Tensor

    @property
    def key(self) -> str:
        """Its name in a table of dimensions: all tensors of a list share one."""
        return self.argument if self.index is None else f"{self.argument}.*"

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.argument if self.index is None else f"{self.argument}[{self.index}]"


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """A parameter or buffer of the model, by its path."""

    position: int
    path: str


@dataclass(frozen=True, slots=True)
class SizeInput:
    """A size that Dynamo passes beside the tensor that has it.

    `tensor` is the place of that tensor among the graph's inputs.
    """

    position: int
    tensor: int
    axis: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a graph by kind; steps in the order of an executor's arguments."""

    steps: tuple[StepInput, ...]
    tensors: tuple[ModelTensor, ...]
    sizes: tuple[SizeInput, ...]
