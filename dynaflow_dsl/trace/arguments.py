"""The arguments of one entry: checked, copied, and described for export."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch.export import Dim

from dynaflow_dsl.trace.export import storage_of, wraps_tensors
from dynaflow_dsl.trace.failures import refuse
from dynaflow_dsl.trace.model import TraceSpec, multiple

# Odd and distinct, so that a size which the model's code fixes is seldom mistaken for
# one that it has anyway.
_EXAMPLE_SIZES = (3, 5, 7, 11, 13, 17)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One tensor that the adapter takes: its name, argument and named axes."""

    name: str
    base: str
    position: int
    dimensions: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One entry with example arguments: what export needs and what names it has."""

    entry: str
    arguments: tuple[Any, ...]
    dynamic_shapes: tuple[Any, ...]
    inputs: tuple[InputSpec, ...]
    signature: tuple[tuple[str, int | None], ...]


def example_sizes(spec: TraceSpec) -> dict[str, int]:
    """A size for every named dimension: distinct, within bounds, and two or more.

    Raises DiagnosticError where the bounds leave no choice, since a dimension of one
    size is none.
    """
    sizes: dict[str, int] = {}
    for name, (lowest, highest) in spec.dimensions.items():
        if not name.isidentifier():
            refuse(f"the dimension '{name}' needs a name that is an identifier")
        if lowest < 1:
            refuse(f"the dimension {name} starts at {lowest}; the least is 1")
        candidates = (
            *(size for size in _EXAMPLE_SIZES if size >= lowest),
            *range(max(2, lowest), max(2, lowest) + len(spec.dimensions) + 1),
        )
        fitting = [
            size
            for size in candidates
            if (highest is None or size <= highest) and size not in sizes.values()
        ]
        if not fitting or lowest == highest:
            refuse(
                f"the dimension {name} has the bounds {lowest} to {highest}, which "
                "leave it no two sizes to be traced with",
                helps=("widen its bounds, or leave it out of the dimensions",),
            )
        sizes[name] = fitting[0]
    return sizes


def lowest_sizes(spec: TraceSpec) -> dict[str, int]:
    """The least size of every named dimension."""
    return {name: lowest for name, (lowest, _) in spec.dimensions.items()}


def describe(spec: TraceSpec, entry: str, adapter: torch.nn.Module) -> Call:
    """Example arguments of an entry and their dynamic shapes.

    The tensors are copies: a failed export leaves marks on those it is given.
    """
    sizes = example_sizes(spec)
    given = spec.entries[entry].make(sizes)
    names = _parameter_names(adapter)
    if not isinstance(given, tuple) or len(given) > len(names):
        owner = "model" if spec.adapter is None else "adapter"
        refuse(
            f"entry '{entry}' must return a tuple of the {owner}'s arguments "
            f"({', '.join(names)})"
        )
    names = names[: len(given)]
    dims = spec.dims_of(entry)
    _check_names(spec, dims, names)
    if spec.entries[entry].phases and "phases" in names:
        refuse(
            f"entry '{entry}' has phases, so steps take an argument 'phases', and the "
            "adapter has one of that name too",
            helps=("give the adapter's argument another name",),
        )
    _check_distinct(entry, names, given)
    dimensions: dict[str, Any] = {
        name: Dim(name, min=lowest, max=highest)
        for name, (lowest, highest) in spec.dimensions.items()
    }
    for axis in {axis for axes in spec.dims.values() for axis in axes if axis}:
        factor, name = multiple(axis)
        if factor != 1:
            dimensions[axis] = factor * dimensions[name]
    inputs: list[InputSpec] = []
    shapes: list[Any] = []
    copies: list[Any] = []
    signature: list[tuple[str, int | None]] = []
    for position, (name, value) in enumerate(zip(names, given, strict=True)):
        listed = isinstance(value, list | tuple)
        elements = list(value) if listed else [value]
        axes = [
            _axes(dims, f"{name}.*" if listed else name, element, sizes)
            for element in elements
        ]
        described = [
            {k: dimensions[axis] for k, axis in enumerate(named) if axis is not None}
            for named in axes
        ]
        cloned = [element.detach().clone() for element in elements]
        shapes.append(described if listed else described[0])
        copies.append(cloned if listed else cloned[0])
        signature.append((name, len(elements) if listed else None))
        inputs.extend(
            InputSpec(f"{name}.{k}" if listed else name, name, position, named)
            for k, named in enumerate(axes)
        )
    return Call(entry, tuple(copies), tuple(shapes), tuple(inputs), tuple(signature))


def _parameter_names(adapter: torch.nn.Module) -> list[str]:
    parameters = inspect.signature(adapter.forward).parameters.values()
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return [parameter.name for parameter in parameters if parameter.kind in positional]


def _check_names(
    spec: TraceSpec, dims: Mapping[str, tuple[str | None, ...]], names: list[str]
) -> None:
    tables: tuple[tuple[str, Iterable[str]], ...] = (
        ("dims", dims),
        ("persistent", spec.persistent),
        ("disjoint", spec.disjoint),
    )
    for table, keys in tables:
        for key in keys:
            base = key.removesuffix(".*") if table == "dims" else key
            if base not in names:
                close = get_close_matches(base, names, 1)
                helps = (f"did you mean '{close[0]}'?",) if close else ()
                owner = "model" if spec.adapter is None else "adapter"
                refuse(
                    f"'{table}' of the target names '{base}', but the {owner}'s "
                    f"arguments are {', '.join(names)}",
                    helps=helps,
                )
    for key, axes in dims.items():
        for axis in axes:
            if axis is not None and (name := multiple(axis)[1]) not in spec.dimensions:
                refuse(
                    f"'dims' of '{key}' names {name}, a dimension without bounds",
                    helps=(f'Add it: dimensions={{"{name}": (1, None)}}.',),
                )
    _check_bounds(spec, names)


def _check_bounds(spec: TraceSpec, names: list[str]) -> None:
    """Refuse bounds of what no axis is called in any entry: its size would be fixed."""
    tables = map(spec.dims_of, spec.entries)
    axes = (axis for dims in tables for each in dims.values() for axis in each if axis)
    named = {multiple(axis)[1] for axis in axes}
    for name in spec.dimensions:
        if name in named:
            continue
        close = get_close_matches(name, named, 1)
        helps = [f"did you mean '{close[0]}'?"] if close else []
        argument = next(iter(names), "x")
        refuse(
            f"'dimensions' of the target has bounds for {name}, and 'dims' gives no "
            "axis this name",
            helps=(
                *helps,
                f'say which axes it is: dims={{"{argument}": ("{name}", ...)}}, with a '
                "name or None for each axis; or, where the size is always the same, "
                "leave it out",
            ),
        )


def _check_distinct(entry: str, names: list[str], given: tuple[Any, ...]) -> None:
    """Tensors and lists of tensors only, and each memory once.

    Export merges two inputs that are one tensor.
    """
    owners: dict[int, str] = {}
    for name, value in zip(names, given, strict=True):
        listed = isinstance(value, list | tuple)
        for index, tensor in enumerate(value if listed else [value]):
            label = f"{name}[{index}]" if listed else name
            if not isinstance(tensor, torch.Tensor):
                refuse(
                    f"argument '{label}' of entry '{entry}' is a "
                    f"{type(tensor).__name__}; arguments are tensors and lists of "
                    "tensors",
                    helps=("make it a parameter of the target function",),
                )
            if wraps_tensors(tensor):
                refuse(
                    f"argument '{label}' of entry '{entry}' is a "
                    f"{type(tensor).__name__}: one tensor to the graph, and several to "
                    "the compiler",
                    helps=(
                        "make the plain tensor of it in the target function "
                        "(to_local(), dequantize()); steps take plain tensors too",
                    ),
                )
            owner = owners.setdefault(storage_of(tensor), label)
            if owner != label:
                refuse(
                    f"entry '{entry}' gives the same tensor for '{owner}' and "
                    f"'{label}', which would become one input",
                    helps=("give each argument a tensor of its own",),
                )


def _axes(
    dims: Mapping[str, tuple[str | None, ...]],
    key: str,
    tensor: torch.Tensor,
    sizes: Mapping[str, int],
) -> tuple[str | None, ...]:
    axes = dims.get(key, (None,) * tensor.ndim)
    if len(axes) != tensor.ndim:
        refuse(
            f"'dims' gives '{key}' {len(axes)} axes, but the example tensor has "
            f"{tensor.ndim}"
        )
    for position, axis in enumerate(axes):
        if axis is None:
            continue
        factor, name = multiple(axis)
        if tensor.shape[position] != factor * sizes[name]:
            refuse(
                f"axis {position} of '{key}' should be {axis}, {factor * sizes[name]} "
                f"in this example, but is {tensor.shape[position]}",
                helps=("take the sizes from the argument of the entry's function",),
            )
    return axes
