"""Compiles every distinct part of an executor, from the module's own text."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.artifacts import (
    Artifact,
    artifact_key,
    read_artifact,
    write_artifact,
)
from dynaflow_dsl.runtime.collector import no_collections
from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.executor_setup import Call
from dynaflow_dsl.runtime.groups import unplayed_role
from dynaflow_dsl.runtime.inductor import (
    Boxed,
    FakeWorld,
    compile_graph,
    compiler_identity,
    hash_triton_ahead,
    inductor_cache,
    load_artifact,
    without_wrapper,
)
from dynaflow_dsl.runtime.inputs import dimensions_of
from dynaflow_dsl.runtime.interleaved import interleaved
from dynaflow_dsl.runtime.multiples import readable
from dynaflow_dsl.runtime.part_calls import (
    Alone,
    CompiledPart,
    bind_all,
    never_called,
)
from dynaflow_dsl.runtime.sizes import Compilations, sample_sizes
from dynaflow_dsl.runtime.traced_text import trace_text
from dynaflow_dsl.runtime.variants import (
    Observed,
    Variant,
    fake_arguments,
    observe,
)
from dynaflow_dsl.runtime.weights import Weights

# A loaded artifact: its function, and the conditions on sizes that it holds under.
Loaded: TypeAlias = tuple[Boxed, tuple[str, ...]]


def compile_parts(
    executor: type[Executor],
    functions: Mapping[str, Sequence[Callable[..., Any]]],
    weights: Mapping[str, Sequence[Weights]],
    device: torch.device,
    folder: Path,
    loaded: dict[str, Loaded] | None = None,
    static: Sequence[tuple[Mapping[str, int], bool]] = (),
) -> dict[str, list[Call]]:
    """One compiled callable for each iteration of each part.

    Artifacts are kept in `folder` and shared by everything that looks the same: equal
    layers, other entries, other processes. Where the compiler's choices hold for some
    sizes only, a part is compiled again for others, for large ones when a step first
    has them; sizes that are left then run its text. `static` are sizes to compile for
    alone, and whether those steps run unsplit. `loaded` holds what other executors of
    the module compiled, by key, and takes what this one does. Raises LoadError (DFS805)
    where a part cannot be compiled.
    """
    known = {} if loaded is None else loaded
    hash_triton_ahead(device)
    with no_collections(), _as_loaded():
        observed = observe(executor, functions, weights, device)
        dimensions = dimensions_of(executor.inputs)
        captured = executor.capture.sizes if executor.capture is not None else {}
        sampled = list(sample_sizes(dimensions, executor.dimensions, captured))
        with inductor_cache(folder / "inductor"):
            identity = compiler_identity(device)

            def make(
                variant: Variant, part: str, hints: Mapping[str, int]
            ) -> CompiledPart:
                own = named[variant]
                names = [*dimensions, *own.products]
                with inductor_cache(folder / "inductor"), _as_loaded():
                    made = _compiled(
                        own.variant, part, names, hints, identity, folder, known
                    )
                if (outputs := observed.fresh.get(variant)) is not None:
                    made = replace(made, boxed=without_wrapper(made.boxed, outputs))
                return made

            named = {variant: readable(variant) for variant in observed.parts}

            def make_all(variant: Variant, part: str) -> Compilations[CompiledPart]:
                tried = [{**sizes, **named[variant].sizes(sizes)} for sizes in sampled]
                return Compilations(partial(make, variant, part), tried)

            made = interleaved(
                [partial(make_all, *pair) for pair in observed.parts.items()]
            )
            compiled = dict(zip(observed.parts, made, strict=True))
            alone = _for_sizes_alone(
                [
                    observe(executor, functions, weights, device, sizes, unsplit)
                    for sizes, unsplit in static
                ],
                lambda variant, part: _compiled(
                    variant, part, (), {}, identity, folder, known
                ),
            )
    calls: dict[str, list[Call]] = {}
    for part, listed in weights.items():
        calls[part] = []
        for position, own in enumerate(listed):
            variant_of = observed.variants.get((part, position))
            if variant_of is None:
                calls[part].append(never_called(part, position))
            else:
                found = alone.get((part, position), [])
                readably = named[variant_of].variant
                calls[part].append(
                    bind_all(part, readably, compiled[variant_of], found, own)
                )
    return calls


@contextmanager
def _as_loaded() -> Iterator[None]:
    """Compile the same code in a step as while a module is loaded."""
    with torch.inference_mode(False), torch.no_grad():
        yield


def _for_sizes_alone(
    observed: Sequence[Observed], make: Callable[[Variant, str], CompiledPart]
) -> dict[tuple[str, int], list[Alone]]:
    """What each iteration of each part is called with, equal calls compiled once."""
    wanted: dict[Variant, tuple[str, int | None]] = {}
    for one in observed:
        for (part, _), variants in one.calls.items():
            for variant in variants:
                wanted.setdefault(variant, (part, one.fresh.get(variant)))

    def make_one(variant: Variant, part: str, outputs: int | None) -> CompiledPart:
        made = make(variant, part)
        if outputs is None:
            return made
        return replace(made, boxed=without_wrapper(made.boxed, outputs))

    made = interleaved(
        [partial(make_one, variant, *rest) for variant, rest in wanted.items()]
    )
    compiled = dict(zip(wanted, made, strict=True))
    found: dict[tuple[str, int], list[Alone]] = {}
    for one in observed:
        for place, variants in one.calls.items():
            pairs = [(variant, compiled[variant]) for variant in variants]
            found.setdefault(place, []).extend(pairs)
    return found


def _compiled(
    variant: Variant,
    part: str,
    dimensions: Sequence[str],
    hints: Mapping[str, int],
    identity: str,
    folder: Path,
    loaded: dict[str, Loaded],
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
    made_from = [str(traced.graph.graph), "\n".join(map(str, layouts)), identity]
    if hints:
        made_from.append(str(sorted(hints.items())))
    key = artifact_key(*made_from)
    if key in loaded:
        return CompiledPart(*loaded[key], traced)
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
            loaded[key] = boxed, artifact.conditions
            return CompiledPart(boxed, artifact.conditions, traced)
    world = FakeWorld(dimensions, hints)
    try:
        content = compile_graph(
            traced.graph, fake_arguments(variant, traced.constants, world), world
        )
    except Exception as error:
        if (advice := unplayed_role(error)) is not None:
            raise LoadError(
                "DFS805", f"the part `{part}` cannot be compiled: {advice}."
            ) from error
        raise LoadError(
            "DFS805",
            f"Inductor cannot compile the part `{part}` (function "
            f"`{variant.function.__name__}`): {type(error).__name__}: {error}. "
            "`compile=False` runs its text as it stands.",
        ) from error
    artifact = Artifact(content, tuple(world.guards()))
    write_artifact(folder, key, artifact)
    loaded[key] = load_artifact(content), artifact.conditions
    return CompiledPart(*loaded[key], traced)
