"""Run a graph on real tensors, whole or in pieces: the oracle of the row check.

It knows what the contract of a split is (slice what enters, concatenate what leaves)
and nothing of the rules.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import groupby
from math import prod
from typing import Any

import torch

from dynaflow_dsl.graph.model import (
    Argument,
    Constant,
    Graph,
    Operation,
    Reference,
    Size,
    Value,
)

DIMENSION = "batch"
Values = dict[str, torch.Tensor]


def run_whole(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> Values:
    """Run every operation once; inputs are written in place."""
    values = dict(inputs)
    batch = batch_of(graph, inputs)
    for operation in graph.operations:
        run_operation(operation, values, batch)
    return values


def run_split(
    graph: Graph,
    region: Collection[str],
    inputs: Mapping[str, torch.Tensor],
    pieces: Sequence[int],
    order: Callable[[range], Iterable[int]] = iter,
) -> Values:
    """Run operations of the region once per piece, all others once.

    Operations of the region that follow each other run piece by piece, in any `order`.
    Values that enter are slices of the whole tensor, views included; values that leave
    are concatenated when they are first read. A view made in the region is made again
    outside. Raises what torch raises where a piece cannot be computed.
    """
    starts = [sum(pieces[:k]) for k in range(len(pieces))]
    whole = dict(inputs)
    split: list[Values] = [{} for _ in pieces]
    types = values_of(graph)
    makers = {
        value.name: operation
        for operation in graph.operations
        for value in operation.results
        if value is not None
    }

    def enter(name: str, k: int) -> torch.Tensor:
        axes = [
            axis
            for axis, size in enumerate(types[name].type.shape)
            if DIMENSION in size.dimensions
        ]
        assert len(axes) < 2, "a value that enters has the dimension twice"
        if not axes:
            return whole[name]
        return whole[name].narrow(axes[0], starts[k], pieces[k])

    def leave(name: str) -> None:
        if name in whole:
            return
        maker = makers[name]
        if maker.view:
            for source in references(maker):
                leave(source)
            run_operation(maker, whole, sum(pieces))
            return
        axes = [
            axis
            for axis, size in enumerate(types[name].type.shape)
            if DIMENSION in size.dimensions
        ]
        parts = [values[name] for values in split]
        if axes:
            whole[name] = torch.cat(parts, axes[0])
        else:
            for part in parts[1:]:
                assert same(part, parts[0]), "microbatches disagree on a shared value"
            whole[name] = parts[0]

    for inside, run in groupby(graph.operations, lambda item: item.name in region):
        operations = list(run)
        if not inside:
            for operation in operations:
                for name in references(operation):
                    leave(name)
                run_operation(operation, whole, sum(pieces))
            continue
        for k in order(range(len(pieces))):
            for operation in operations:
                for name in references(operation):
                    maker = makers.get(name)
                    if maker is None or maker.name not in region:
                        split[k][name] = enter(name, k)
                run_operation(operation, split[k], pieces[k])
    for name in graph.outputs:
        leave(name)
    return whole


def run_operation(operation: Operation, values: Values, batch: int) -> None:
    """Run one operation and keep its results."""
    operator = implementation(operation.operator)
    arguments = [concrete(item, values, batch) for item in operation.arguments]
    keywords = {key: concrete(item, values, batch) for key, item in operation.keywords}
    returned = operator(*arguments, **keywords)
    results = returned if operation.multiple else (returned,)
    for value, tensor in zip(operation.results, results, strict=False):
        if value is not None:
            expected = tuple(number(size, batch) for size in value.type.shape)
            assert tuple(tensor.shape) == expected, f"{operation.name}: {tensor.shape}"
            values[value.name] = tensor


def schema_of(operator: str) -> Any:
    """The signature of an operator."""
    namespace, name, overload = operator.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)._schema


def implementation(operator: str) -> Callable[..., Any]:
    """What an operator does: torch's own, but where that cannot be compared.

    Tensors without content hold zeros, since nobody may rely on what they hold. There
    is one process, so collectives are between this rank and one that does not exist and
    holds the same rows with twice the numbers.
    """
    namespace, name, overload = operator.split(".")
    if namespace == "_c10d_functional":
        return COLLECTIVES[name]
    found = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    if "empty" not in name:
        return found  # type: ignore[no-any-return]
    return lambda *arguments, **keywords: found(*arguments, **keywords).zero_()


RANKS = 2


def _both(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, 2 * tensor])


def _all_gather(tensor: torch.Tensor, ranks: int, group: str) -> torch.Tensor:
    if ranks != RANKS:
        raise RuntimeError("there are two ranks")
    return _both(tensor)


def _reduce_scatter(
    tensor: torch.Tensor, how: str, ranks: int, group: str
) -> torch.Tensor:
    if ranks != RANKS or tensor.shape[0] % RANKS:
        raise RuntimeError("there are two ranks")
    return 3 * tensor.narrow(0, 0, tensor.shape[0] // RANKS)


COLLECTIVES: Mapping[str, Callable[..., torch.Tensor]] = {
    "all_reduce": lambda tensor, how, group: tensor + 2 * tensor,
    "all_gather_into_tensor": _all_gather,
    "reduce_scatter_tensor": _reduce_scatter,
    "wait_tensor": lambda tensor: tensor.clone(),
}


def number(size: Size, batch: int) -> int:
    return size.factor * prod(batch for _ in size.dimensions)


def concrete(argument: Argument, values: Values, batch: int) -> object:
    match argument:
        case Reference(name):
            return values[name]
        case Size():
            return number(argument, batch)
        case Constant(kind, name):
            return torch.device("cpu") if kind == "device" else getattr(torch, name)
        case tuple():
            return [concrete(item, values, batch) for item in argument]
        case _:
            return argument


def references(operation: Operation) -> Iterator[str]:
    def walk(argument: Argument) -> Iterator[str]:
        if isinstance(argument, Reference):
            yield argument.name
        elif isinstance(argument, tuple):
            for item in argument:
                yield from walk(item)

    for argument in (*operation.arguments, *(item for _, item in operation.keywords)):
        yield from walk(argument)


def values_of(graph: Graph) -> dict[str, Value]:
    found = {item.value.name: item.value for item in graph.inputs}
    for operation in graph.operations:
        for value in operation.results:
            if value is not None:
                found[value.name] = value
    return found


def batch_of(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> int:
    for item in graph.inputs:
        for axis, size in enumerate(item.value.type.shape):
            if size == Size(1, (DIMENSION,)):
                return inputs[item.value.name].shape[axis]
    raise AssertionError("no input has the split dimension")


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.allclose(left, right, rtol=1e-4, atol=1e-5, equal_nan=True)


def copied(inputs: Mapping[str, torch.Tensor]) -> Values:
    return {name: tensor.clone() for name, tensor in inputs.items()}


PIECES = ((2, 3), (1, 4), (1, 1, 1, 2))


def difference(
    graph: Graph, region: Collection[str], inputs: Mapping[str, torch.Tensor]
) -> str | None:
    """Compare whole with pieces (of 5 rows): what differs, or None."""
    whole_inputs = copied(inputs)
    whole = run_whole(graph, whole_inputs)
    for pieces in PIECES:
        split_inputs = copied(inputs)
        order = reversed if len(pieces) == 2 else iter
        try:
            split = run_split(graph, region, split_inputs, pieces, order)
        except (AssertionError, RuntimeError, IndexError, ValueError) as error:
            return f"{pieces}: {type(error).__name__}: {error}"
        for name in graph.outputs:
            if not same(whole[name], split[name]):
                return f"{pieces}: output {name} differs"
        for name, tensor in whole_inputs.items():
            if not same(tensor, split_inputs[name]):
                return f"{pieces}: input {name} is written differently"
    return None


def leaking_row(graph: Graph, inputs: Mapping[str, torch.Tensor]) -> str | None:
    """Poison one row of everything that is split: which other row it reaches, or None.

    Floats become NaN. Inputs that are not floats stay, since others are not valid
    everywhere.
    """
    clean = run_whole(graph, copied(inputs))
    types = values_of(graph)
    row = 2
    poisoned = copied(inputs)
    for item in graph.inputs:
        tensor = poisoned[item.value.name]
        for axis, size in enumerate(item.value.type.shape):
            if DIMENSION in size.dimensions and tensor.is_floating_point():
                tensor.select(axis, row).fill_(float("nan"))
    dirty = run_whole(graph, poisoned)
    for name in graph.outputs:
        axes = [
            axis
            for axis, size in enumerate(types[name].type.shape)
            if DIMENSION in size.dimensions
        ]
        before, after = clean[name], dirty[name]
        if axes and types[name].type.shape[axes[0]] != Size(1, (DIMENSION,)):
            # Rows are spread over the axis: only the pieces tell what is right.
            continue
        if axes:
            others = [k for k in range(before.shape[axes[0]]) if k != row]
            before = before.index_select(axes[0], torch.tensor(others))
            after = after.index_select(axes[0], torch.tensor(others))
        if not same(before, after):
            return name
    return None
