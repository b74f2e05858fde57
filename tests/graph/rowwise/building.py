"""Graphs made operation by operation, by running each one at two batch sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dynaflow_dsl.graph.model import (
    Argument,
    Graph,
    Input,
    Operation,
    Reference,
    Size,
    TensorType,
    Value,
)
from tests.graph.rowwise.interpreter import concrete, implementation, references
from tests.graph.rowwise.tracing import ROWS, Given

BATCH = Size(1, ("batch",))
# Sizes that nothing else in a test has, so that a factor is one.
_BATCHES = (ROWS, 11)


class Unsized(Exception):
    """A size is no multiple of the batch, or the operation does not run at all."""


class Builder:
    """Adds inputs and operations; values are `Reference`s that later calls take."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.operations: list[Operation] = []
        self.types: dict[str, TensorType] = {}
        self._fresh: dict[str, torch.Tensor] = {}
        self._tensors: tuple[dict[str, torch.Tensor], ...] = ({}, {})
        self._storages: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []

    def input(self, given: Given) -> Reference:
        """Add a step input."""
        name = f"input_{len(self.inputs)}"
        value = self._value(name, [given.tensor(batch) for batch in _BATCHES])
        self.inputs.append(Input(name, "step", value, argument=len(self.inputs)))
        self._fresh[name] = self._tensors[0][name].clone()
        return Reference(name)

    def call(self, operator: str, *arguments: Argument, **keywords: Argument) -> Any:
        """Add an operation; return its result, or a tuple where there are several.

        An in-place operation returns what it writes.
        """
        name = f"op_{len(self.operations)}"
        namespace, base, overload = operator.split(".")
        function = getattr(getattr(getattr(torch.ops, namespace), base), overload)
        run = implementation(operator)
        returned = []
        for batch, tensors in zip(_BATCHES, self._tensors, strict=True):
            try:
                returned.append(
                    run(
                        *(concrete(item, tensors, batch) for item in arguments),
                        **{k: concrete(v, tensors, batch) for k, v in keywords.items()},
                    )
                )
            except (RuntimeError, IndexError, ValueError) as error:
                raise Unsized(str(error)) from error
        multiple = not isinstance(returned[0], torch.Tensor)
        several = [list(item) if multiple else [item] for item in returned]
        if len({len(item) for item in several}) > 1 or not several[0]:
            raise Unsized("as many results as there are rows")
        writes = tuple(
            item.name
            for item, schema in zip(arguments, function._schema.arguments, strict=False)
            if isinstance(item, Reference)
            and schema.alias_info is not None
            and schema.alias_info.is_write
        )
        before = set(self._storages)
        results: list[Value | None] = []
        if not writes:
            results = [
                self._value(f"{name}_{k}", list(item))
                for k, item in enumerate(zip(*several, strict=True))
            ]
        self.operations.append(
            Operation(
                name=name,
                operator=operator,
                arguments=arguments,
                keywords=tuple(keywords.items()),
                results=tuple(results),
                multiple=multiple,
                writes=writes,
                view=not writes and before == set(self._storages),
                tags=tuple(
                    mark
                    for mark, tag in (
                        ("pointwise", torch.Tag.pointwise),
                        ("random", torch.Tag.nondeterministic_seeded),
                    )
                    if tag in function.tags
                ),
                module="",
                source=None,
            )
        )
        if writes:
            return Reference(writes[0])
        made = tuple(Reference(value.name) for value in results if value is not None)
        return made if multiple else made[0]

    def declare(self, operator: str, *arguments: Argument, given: Given) -> Reference:
        """Add an operation that is not run; its result has the given shape."""
        name = f"op_{len(self.operations)}"
        value = self._value(f"{name}_0", [given.tensor(batch) for batch in _BATCHES])
        self.operations.append(
            Operation(
                name=name,
                operator=operator,
                arguments=arguments,
                keywords=(),
                results=(value,),
                multiple=False,
                writes=(),
                view=False,
                tags=(),
                module="",
                source=None,
            )
        )
        return Reference(value.name)

    def graph(self, *outputs: Reference) -> Graph:
        """Finish the graph; of several results, those that nobody reads are None."""
        read = {item.name for item in outputs}
        for operation in self.operations:
            read.update(references(operation))
        operations = tuple(
            replace(
                operation,
                results=tuple(
                    value if value is not None and value.name in read else None
                    for value in operation.results
                ),
            )
            if operation.multiple
            else operation
            for operation in self.operations
        )
        return Graph(
            entry="run",
            inputs=tuple(self.inputs),
            operations=operations,
            outputs=tuple(item.name for item in outputs),
            dimensions=(("batch", 1, None),),
            signature=tuple((item.name, None) for item in self.inputs),
            modules=("",),
        )

    def names(self) -> list[str]:
        """Return the names of all operations so far."""
        return [operation.name for operation in self.operations]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return inputs of five rows: those that every operation ran on."""
        return {name: tensor.clone() for name, tensor in self._fresh.items()}

    def _value(self, name: str, tensors: list[torch.Tensor]) -> Value:
        few, many = tensors
        # A storage is known by its address, so none may be freed.
        self._alive.extend(tensors)
        for tensor, known in zip(tensors, self._tensors, strict=True):
            known[name] = tensor
        if few.dim() != many.dim():
            raise Unsized("another number of axes")
        self.types[name] = TensorType(
            tuple(map(_size, few.shape, many.shape)),
            tuple(map(_size, few.stride(), many.stride())),
            str(few.dtype).removeprefix("torch."),
        )
        key = few.untyped_storage()._cdata
        return Value(
            name, self.types[name], self._storages.setdefault(key, len(self._storages))
        )


def _size(few: int, many: int) -> Size:
    if min(few, many) < 0:
        # Some windows are not checked, and torch makes a tensor that nothing can read.
        raise Unsized(f"{few} and {many}")
    for power in range(3):
        one, other = (batch**power for batch in _BATCHES)
        if few % one == 0 and many % other == 0 and few // one == many // other:
            return Size(few // one, ("batch",) * power)
    raise Unsized(f"{few} and {many}")
