"""What each input of a Dynamo graph is: a weight, a step's argument, or a size."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch

from dynaflow_dsl.integrations.dynamo.frames import fix_number
from dynaflow_dsl.integrations.dynamo.model import (
    DynamoGraph,
    Inputs,
    ModelTensor,
    NumberInput,
    SizeInput,
    StepInput,
)
from dynaflow_dsl.integrations.dynamo.sources import (
    Attribute,
    Owner,
    Step,
    outermost_module,
    without_tables,
)
from dynaflow_dsl.trace.failures import refuse


def read_inputs(graph: DynamoGraph) -> Inputs:
    """The inputs of a graph by kind; raises DiagnosticError for what is none of them.

    Weights are found by identity, so that one graph that Dynamo shares between layers
    or models has those of this call. Numbers of the model, which dynamic=True leaves
    open as it does sizes, are fixed to what they are.
    """
    owner = Owner(graph.model)
    steps: list[StepInput] = []
    tensors: list[ModelTensor] = []
    sizes: list[tuple[int, Any]] = []
    numbers: list[NumberInput] = []
    unread: list[int] = []
    for position, node in enumerate(graph.placeholders):
        example = graph.examples[position]
        source = graph.sources[position]
        traced = traced_value(graph, position)
        path = (
            graph.names.get(str(node.target))
            or owner.tensor(example)
            or owner.tensor(graph.scope.value(source))
        )
        if path is not None:
            tensors.append(ModelTensor(position, path))
        elif isinstance(number := graph.scope.value(source), int | float):
            # Numbers too may come as tensors.
            if outermost_module(graph.scope, source) is None:
                _refuse_number(graph, position)
            fix_number(traced)
            numbers.append(NumberInput(position, number))
        elif isinstance(traced, torch.Tensor):
            name = _argument(graph.scope.argument(source), str(node.target))
            steps.append(StepInput(position, name, None, traced))
        elif node.users:
            sizes.append((position, traced))
        else:
            unread.append(position)
    listed = _grouped(steps, graph)
    return Inputs(
        tuple(_in_order(listed, graph)),
        tuple(tensors),
        tuple(_size(graph, position, size, steps) for position, size in sizes),
        tuple(numbers),
        tuple(unread),
    )


def traced_value(graph: DynamoGraph, position: int) -> Any:
    """An input as Dynamo traced it: tensors are fake, and sizes may be symbols."""
    meta = graph.placeholders[position].meta
    return meta.get("example_value", meta.get("val", graph.examples[position]))


def _size(
    graph: DynamoGraph, position: int, number: Any, steps: Iterable[StepInput]
) -> SizeInput:
    for item in steps:
        for axis, size in enumerate(item.shape):
            if isinstance(size, torch.SymInt) and str(size) == str(number):
                return SizeInput(position, item.position, axis)
        for axis, stride in enumerate(item.tensor.stride()):
            if isinstance(stride, torch.SymInt) and str(stride) == str(number):
                _refuse_stride(item, axis)
    return _refuse_number(graph, position)


def _refuse_stride(item: StepInput, axis: int) -> NoReturn:
    refuse(
        f"the model's code reads the stride of axis {axis} of '{item.label}', which "
        "differs between calls, and executors take a copy of it without gaps",
        helps=(f"call the model with {item.label}.contiguous()",),
    )


def _refuse_number(graph: DynamoGraph, position: int) -> NoReturn:
    source = graph.scope.argument(graph.sources[position])
    name = _argument(source, str(graph.placeholders[position].target))
    refuse(
        f"'{name}' is a number that differs between calls, and an executor's arguments "
        "are tensors",
        helps=(
            "pass it as a tensor, or the same number in every call",
            "name open axes in `dims` instead of compiling with dynamic=True, which "
            "opens numbers too",
        ),
    )


def _argument(steps: Sequence[Step], placeholder: str) -> str:
    """A name for what Dynamo calls `L['cache'].layers[0].keys`."""
    name = _joined(steps) if steps else placeholder.removeprefix("L_").strip("_")
    return _identifier(name)


def _joined(steps: Sequence[Step]) -> str:
    words = [step.name if isinstance(step, Attribute) else str(step) for step in steps]
    return "_".join(without_tables(words))


def _identifier(name: str) -> str:
    name = re.sub(r"\W", "_", name)
    if not name or name[0].isdigit():
        name = f"input_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


def _grouped(steps: Sequence[StepInput], graph: DynamoGraph) -> list[StepInput]:
    """Make one list of tensors that differ in an index of their names alone.

    Only where all of a list's first tensors are there, with axes of the same kind: a
    list with gaps has names of its own for each.
    """
    families: dict[str, dict[int, int]] = {}
    for number, item in enumerate(steps):
        found = _without_index(graph.scope.argument(graph.sources[item.position]))
        if found is not None:
            name, index = found
            families.setdefault(name, {})[index] = number
    taken = {item.argument for item in steps}
    grouped = list(steps)
    for name, members in families.items():
        items = [steps[members[index]] for index in sorted(members)]
        whole = sorted(members) == list(range(len(members)))
        alike = len({_kinds_of_axes(item) for item in items}) == 1
        if not whole or not alike or name in taken:
            continue
        for index, number in members.items():
            grouped[number] = replace(steps[number], argument=name, index=index)
    return grouped


def _without_index(steps: Sequence[Step]) -> tuple[str, int] | None:
    places = [k for k, step in enumerate(steps) if isinstance(step, int)]
    if not places:
        return None
    last = places[-1]
    index = steps[last]
    assert isinstance(index, int)
    rest = [*steps[:last], *steps[last + 1 :]]
    return (_identifier(_joined(rest)), index) if rest else None


def _kinds_of_axes(item: StepInput) -> tuple[bool, ...]:
    return tuple(isinstance(size, torch.SymInt) for size in item.shape)


def _in_order(steps: Iterable[StepInput], graph: DynamoGraph) -> list[StepInput]:
    """In the order of the function's variables: Dynamo has them as they are used."""
    # What a graph reads of a module that is no weight comes last.
    scope = graph.scope
    variables = [
        n for n, v in scope.local.items() if not isinstance(v, torch.nn.Module)
    ]
    names = [*scope.parameters, *variables]

    def place(item: StepInput) -> tuple[int, str]:
        first, *_ = (*scope.argument(graph.sources[item.position]), None)
        if first in names:
            return names.index(first), ""
        return len(names), item.argument

    ordered = sorted(steps, key=place)
    # A list is one argument, wherever its tensors are used.
    arguments = list(dict.fromkeys(item.argument for item in ordered))
    return sorted(
        ordered, key=lambda item: (arguments.index(item.argument), item.index or 0)
    )
