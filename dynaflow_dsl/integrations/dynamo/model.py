"""A graph of Dynamo as a backend gets it, and what its inputs are to a schedule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    one of its layers. `names` gives paths of their own to placeholders that are tensors
    of the model but neither parameters nor buffers of its modules.
    """

    module: GraphModule
    examples: tuple[Any, ...]
    sources: tuple[str | None, ...]
    scope: Scope
    model: torch.nn.Module
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def placeholders(self) -> list[Node]:
        """The inputs' nodes."""
        return [node for node in self.module.graph.nodes if node.op == "placeholder"]


@dataclass(frozen=True, slots=True)
class StepInput:
    """A tensor that is given in every step.

    `position` is its place among the graph's inputs. `argument` is the name of the
    executor's argument, and `index` its place in it where that is a list. `tensor` is
    as Dynamo traced it.
    """

    position: int
    argument: str
    index: int | None
    tensor: torch.Tensor

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """Its sizes in the call that is being compiled, None where that is unknown."""
        return tuple(
            size if isinstance(size, int) else size.node.hint for size in self.shape
        )

    @property
    def shape(self) -> tuple[int | torch.SymInt, ...]:
        """Its sizes, as symbols where Dynamo left them open."""
        return tuple(map(_open_or_fixed, self.tensor.shape))

    @property
    def name(self) -> str:
        """Its name in a traced graph."""
        return self.argument if self.index is None else f"{self.argument}.{self.index}"

    @property
    def key(self) -> str:
        """Its name in a table of dimensions: all tensors of a list share one."""
        return self.argument if self.index is None else f"{self.argument}.*"

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.argument if self.index is None else f"{self.argument}[{self.index}]"


def _open_or_fixed(size: int | torch.SymInt) -> int | torch.SymInt:
    # A symbol that the model's code gave one value is still passed around as one.
    if isinstance(size, torch.SymInt) and size.node.expr.is_Integer:
        return int(size.node.expr)
    return size


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

    def of(self, steps: Sequence[StepInput]) -> Meaning:
        """What is said of these inputs."""
        keys = {item.key for item in steps}
        arguments = {item.argument for item in steps}
        return self._where(keys.__contains__, arguments.__contains__)

    def without(
        self, left_out: Callable[[str], bool], steps: Sequence[StepInput]
    ) -> Meaning:
        """What is said of these inputs and of all that is not `left_out` by a call."""
        arguments = {item.argument for item in steps}

        def kept(argument: str) -> bool:
            return argument in arguments or not left_out(argument)

        return self._where(lambda key: kept(argument_of(key)), kept)

    def _where(
        self, has_key: Callable[[str], bool], has_argument: Callable[[str], bool]
    ) -> Meaning:
        return replace(
            self,
            dims={k: axes for k, axes in self.dims.items() if has_key(k)},
            persistent={k: v for k, v in self.persistent.items() if has_argument(k)},
            disjoint=tuple(name for name in self.disjoint if has_argument(name)),
        )


def argument_of(key: str) -> str:
    """The argument that a key of a table of dimensions is about."""
    return key.removesuffix(".*")


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """A parameter or buffer of the model, by its path."""

    position: int
    path: str


@dataclass(frozen=True, slots=True)
class Output:
    """An output of a graph.

    `result` is its own place among the outputs, where it is a tensor, and `given` the
    place among the graph's inputs of a tensor of the model that is returned as it is,
    as after `self.count += 1`; `value` is what is returned in every step; else it is
    `factor` times the sizes of axes, given as places of tensors among the graph's
    inputs with their axes.
    """

    result: int | None = None
    given: int | None = None
    value: Any = None
    factor: int | None = None
    axes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SizeInput:
    """A size that Dynamo passes beside the tensor that has it.

    `tensor` is the place of that tensor among the graph's inputs.
    """

    position: int
    tensor: int
    axis: int


@dataclass(frozen=True, slots=True)
class NumberInput:
    """A number of the model that Dynamo passes, with the value that it has in this
    graph: for another one Dynamo makes another graph.
    """

    position: int
    value: int | float


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a graph by kind; steps in the order of an executor's arguments.

    `unread` are places of numbers that no operation reads, such as the strides of a
    tensor that is a part of a larger one.
    """

    steps: tuple[StepInput, ...]
    tensors: tuple[ModelTensor, ...]
    sizes: tuple[SizeInput, ...]
    numbers: tuple[NumberInput, ...] = ()
    unread: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many inputs the graph has."""
        kinds = (self.steps, self.tensors, self.sizes, self.numbers, self.unread)
        return sum(map(len, kinds))


@dataclass(frozen=True, slots=True)
class Interface:
    """How an executor is called in place of a graph, in plain data.

    `count` is the number of the graph's inputs. `arguments` are those of the executor:
    the place of a tensor among the inputs, or the places of a list. `weights` are the
    places of tensors that the executor is bound to, with their paths. Where the graph
    returns tensors alone, `outputs` has as many as the executor. `written` are the
    places of tensors that a step writes in place.
    """

    count: int
    arguments: tuple[int | tuple[int, ...], ...]
    weights: tuple[tuple[int, str], ...]
    outputs: tuple[Output, ...]
    written: frozenset[int] = frozenset()


def interface_of(
    inputs: Inputs, outputs: tuple[Output, ...], written: Collection[str]
) -> Interface:
    """The interface of a graph with these inputs and outputs.

    `written` are names of inputs, those of lists with the number of the tensor.
    """
    places: dict[str, list[int]] = {}
    listed = {item.argument for item in inputs.steps if item.index is not None}
    for item in inputs.steps:
        places.setdefault(item.argument, []).append(item.position)
    return Interface(
        inputs.count,
        tuple(
            tuple(found) if name in listed else found[0]
            for name, found in places.items()
        ),
        tuple((item.position, item.path) for item in inputs.tensors),
        outputs,
        frozenset(item.position for item in inputs.steps if item.name in written),
    )
