"""Compiles every distinct part of an executor once, from the module's own text."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dynaflow_dsl.runtime.artifacts import (
    Artifact,
    artifact_key,
    read_artifact,
    write_artifact,
)
from dynaflow_dsl.runtime.capture import (
    Literal,
    SizeInput,
    TensorLayout,
    Traced,
    Variant,
    dimensions_of,
    fake_arguments,
    observe,
    trace_text,
)
from dynaflow_dsl.runtime.errors import InputError, LoadError
from dynaflow_dsl.runtime.executor import Call, Executor
from dynaflow_dsl.runtime.inductor import (
    SIZE_FUNCTIONS,
    Boxed,
    FakeWorld,
    compile_graph,
    compiler_identity,
    inductor_cache,
    load_artifact,
    without_wrapper,
)
from dynaflow_dsl.runtime.weights import Weights


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """A compiled variant: its function, and the conditions on sizes it holds under."""

    boxed: Boxed
    conditions: tuple[str, ...]
    traced: Traced


def compile_parts(
    executor: type[Executor],
    functions: Mapping[str, Sequence[Callable[..., Any]]],
    weights: Mapping[str, Sequence[Weights]],
    device: torch.device,
    folder: Path,
) -> dict[str, list[Call]]:
    """One compiled callable for each iteration of each part.

    Artifacts are kept in `folder` and shared by everything that looks the same: equal
    layers, other entries, other processes. Raises LoadError (DFS805) where a part
    cannot be compiled.
    """
    with torch.inference_mode(False), torch.no_grad():
        observed = observe(executor, functions, weights, device)
        dimensions = dimensions_of(executor.inputs)
        compiled: dict[Variant, CompiledPart] = {}
        with inductor_cache(folder / "inductor"):
            identity = compiler_identity(device)
            for variant, part in observed.parts.items():
                made = _compiled(variant, part, dimensions, identity, folder)
                if (outputs := observed.fresh.get(variant)) is not None:
                    made = replace(made, boxed=without_wrapper(made.boxed, outputs))
                compiled[variant] = made
    calls: dict[str, list[Call]] = {}
    for part, listed in weights.items():
        calls[part] = []
        for position, own in enumerate(listed):
            known = observed.variants.get((part, position))
            if known is None:
                calls[part].append(_never_called(part, position))
            else:
                calls[part].append(
                    _bind(part, known, compiled[known], tuple(own.values()))
                )
    return calls


def _compiled(
    variant: Variant,
    part: str,
    dimensions: Sequence[str],
    identity: str,
    folder: Path,
) -> CompiledPart:
    traced = trace_text(variant, part)
    layouts = [
        *(layout for _, layout in variant.weights),
        *variant.arguments,
        *(
            f"{constant.dtype} {tuple(constant.shape)} {tuple(constant.stride())}"
            for constant in traced.constants
        ),
    ]
    key = artifact_key(str(traced.graph.graph), "\n".join(map(str, layouts)), identity)
    artifact = read_artifact(folder, key)
    if artifact is not None:
        try:
            boxed = load_artifact(artifact.content)
        except Exception as error:  # whatever is wrong with it, it can be made again
            warnings.warn(
                f"the artifact of part `{part}` in {folder} cannot be loaded "
                f"({type(error).__name__}: {error}); compiling it again",
                stacklevel=2,
            )
        else:
            return CompiledPart(boxed, artifact.conditions, traced)
    world = FakeWorld(dimensions)
    try:
        content = compile_graph(
            traced.graph, fake_arguments(variant, traced, world), world
        )
    except Exception as error:
        raise LoadError(
            "DFS805",
            f"Inductor cannot compile the part `{part}` (function "
            f"`{variant.function.__name__}`): {type(error).__name__}: {error}. "
            "`compile=False` runs its text as it stands.",
        ) from error
    artifact = Artifact(content, tuple(world.guards()))
    write_artifact(folder, key, artifact)
    return CompiledPart(load_artifact(content), artifact.conditions, traced)


def _bind(
    part: str,
    variant: Variant,
    compiled: CompiledPart,
    weights: tuple[torch.Tensor, ...],
) -> Call:
    """A callable that takes the iteration's inputs, as flat as it can be."""
    boxed, constants = compiled.boxed, compiled.traced.constants
    outputs = compiled.traced.outputs
    call: Call
    if constants or any(isinstance(layout, Literal) for layout in variant.arguments):
        call = _bind_with_literals(part, variant, compiled, weights)
    elif outputs == "tensor":

        def call(*arguments: Any) -> Any:
            return boxed([*weights, *arguments])[0]

    elif outputs == "tuple":

        def call(*arguments: Any) -> Any:
            return boxed([*weights, *arguments])

    else:

        def call(*arguments: Any) -> Any:
            boxed([*weights, *arguments])

    if compiled.conditions:
        return _checked(part, variant, compiled.conditions, call)
    return call


def _bind_with_literals(
    part: str,
    variant: Variant,
    compiled: CompiledPart,
    weights: tuple[torch.Tensor, ...],
) -> Call:
    boxed, constants = compiled.boxed, compiled.traced.constants
    outputs = compiled.traced.outputs
    literals = [
        (position, layout.value)
        for position, layout in enumerate(variant.arguments)
        if isinstance(layout, Literal)
    ]
    kept = [
        position
        for position, layout in enumerate(variant.arguments)
        if not isinstance(layout, Literal)
    ]

    def call(*arguments: Any) -> Any:
        for position, value in literals:
            if arguments[position] != value:
                raise InputError(
                    "DFS802",
                    f"the part `{part}` was compiled for {value!r} as its input "
                    f"{position}, and was called with {arguments[position]!r}.",
                )
        given = [arguments[position] for position in kept]
        result = boxed([*weights, *given, *constants])
        match outputs:
            case "tensor":
                return result[0]
            case "tuple":
                return result
        return None

    return call


def _checked(
    part: str, variant: Variant, conditions: tuple[str, ...], call: Call
) -> Call:
    """Check what the compiler assumed of sizes, once for each combination of sizes."""
    places = _places(variant)
    accepted: set[tuple[int, ...]] = set()

    def checked(*arguments: Any) -> Any:
        sizes = tuple(
            arguments[position] if axis is None else arguments[position].shape[axis]
            for _, position, axis in places
        )
        if sizes not in accepted:
            names = (name for name, _, _ in places)
            _check_sizes(part, conditions, dict(zip(names, sizes, strict=True)))
            accepted.add(sizes)
        return call(*arguments)

    return checked


def _check_sizes(
    part: str, conditions: Sequence[str], sizes: Mapping[str, int]
) -> None:
    for condition in conditions:
        if not _holds(condition, sizes):
            given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise InputError(
                "DFS802",
                f"the part `{part}` was compiled for sizes with {condition}, and is "
                f"called with {given}: split such steps into smaller ones, or load "
                "with `compile=False`.",
            )


def _holds(condition: str, sizes: Mapping[str, int]) -> bool:
    try:
        return bool(eval(condition, {**SIZE_FUNCTIONS, **sizes}))
    except (NameError, ArithmeticError, TypeError, ValueError):
        # A condition that cannot be decided is one that nobody checked.
        return False


def _places(variant: Variant) -> list[tuple[str, int, int | None]]:
    """For each dimension, the first argument and axis that has exactly its size."""
    found: dict[str, tuple[str, int, int | None]] = {}
    for position, layout in enumerate(variant.arguments):
        match layout:
            case TensorLayout(shape=shape):
                for axis, size in enumerate(shape):
                    if isinstance(size, str) and size.isidentifier():
                        found.setdefault(size, (size, position, axis))
            case SizeInput(size) if size.isidentifier():
                found.setdefault(size, (size, position, None))
    return list(found.values())


def _never_called(part: str, position: int) -> Call:
    def call(*_: Any) -> Any:
        raise InputError(
            "DFS802",
            f"iteration {position} of the part `{part}` is not part of `sequential`, "
            "so it was not compiled.",
        )

    return call
