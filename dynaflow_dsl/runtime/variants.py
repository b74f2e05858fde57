"""The variants of parts that a step calls, and their layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.executor import Executor, attach
from dynaflow_dsl.runtime.inductor import FakeWorld, Size
from dynaflow_dsl.runtime.inputs import dimensions_of, dtype_of, factors
from dynaflow_dsl.runtime.live_memory import LiveMemory
from dynaflow_dsl.runtime.model import PhaseSplit, TensorSpec, every_part
from dynaflow_dsl.runtime.streams import CallingThread, CpuStreams
from dynaflow_dsl.runtime.weights import Weights, record


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """A tensor as the compiler sees it; sizes are integers or text over dimensions."""

    shape: tuple[int | str, ...]
    strides: tuple[int | str, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class SizeInput:
    """An argument that is a size, such as `batch`."""

    size: str


@dataclass(frozen=True, slots=True)
class Literal:
    """An argument that is the same in every call: a number, a flag, None or a name."""

    value: int | float | bool | str | None


ArgumentLayout: TypeAlias = TensorLayout | SizeInput | Literal


@dataclass(frozen=True, slots=True)
class Variant:
    """One function with weights and arguments of one layout: what is compiled once."""

    function: Callable[..., Any]
    weights: tuple[tuple[str, TensorLayout], ...]
    arguments: tuple[ArgumentLayout, ...]


@dataclass(slots=True)
class Observed:
    """What a run on fake tensors called.

    `variants` are by part and iteration; `calls` holds all of them where sizes are
    numbers and pieces may differ. `parts` names the part that first called each
    variant. `fresh` gives the number of outputs of variants whose outputs are new
    tensors that share no memory.
    """

    variants: dict[tuple[str, int], Variant] = field(default_factory=dict)
    calls: dict[tuple[str, int], list[Variant]] = field(default_factory=dict)
    parts: dict[Variant, str] = field(default_factory=dict)
    fresh: dict[Variant, int] = field(default_factory=dict)


def observe(
    executor: type[Executor],
    functions: Mapping[str, Sequence[Callable[..., Any]]],
    weights: Mapping[str, Sequence[Weights]],
    device: torch.device,
    sizes: Mapping[str, int] | None = None,
    unsplit: bool = False,
    memory: LiveMemory | None = None,
) -> Observed:
    """Run `sequential` on fake tensors and note what every part is called with.

    `functions` and `weights` are those of each part's iterations. Layers whose inputs
    look the same run once. With `sizes`, numbers instead of symbols, what runs is what
    a step of these sizes runs, or with `unsplit` what it runs without a split, and
    `memory` counts what it takes. Raises LoadError (DFS805) when the operations hold
    for one size of a dimension only.
    """
    world = FakeWorld(dimensions_of(executor.inputs) if sizes is None else ())
    world.sizes.update(sizes or {})
    observed = Observed()
    parts = every_part(executor.parts())
    writing = {name: part.into for name, part in parts.items()}
    results: dict[Variant, Any] = {}
    taken: dict[Variant, int] = {}
    counted = LiveMemory() if memory is None else memory

    def interceptor(part: str, position: int) -> Callable[..., Any]:
        function = functions[part][position]
        own = weights[part][position]
        layouts = tuple((name, _static(tensor)) for name, tensor in own.items())

        def call(*arguments: Any) -> Any:
            described = tuple(_describe(part, value, world) for value in arguments)
            variant = Variant(function, layouts, described)
            known = observed.variants.setdefault((part, position), variant)
            listed = observed.calls.setdefault((part, position), [])
            if variant not in listed:
                listed.append(variant)
            if known != variant and sizes is None:
                raise LoadError(
                    "DFS805",
                    f"the part `{part}` is called twice for iteration {position} of "
                    f"{executor.__name__}, with inputs of different layout.",
                )
            observed.parts.setdefault(variant, part)
            if variant not in results:
                with counted.paused():
                    fake = {name: _fake(layout, world) for name, layout in layouts}
                with counted.apart() as found:
                    returned = _run_once(part, function, fake, arguments)
                (taken[variant],) = found
                counted.forget(returned)
                results[variant] = returned
                count = _fresh_outputs(returned, (*fake.values(), *arguments))
                if count is not None:
                    observed.fresh[variant] = count
            else:
                counted.take(taken[variant])
            if sizes is None:
                # `sequential` writes no results into tensors, and `step` does.
                for attribute, into in writing.get(part, {}).items():
                    made = results[variant]
                    outputs = made if isinstance(made, tuple | list) else (made,)
                    given = [_copied(outputs[k]) for k in into.results]
                    interceptor(attribute, position)(*arguments, *given)
            return _copied(results[variant])

        return call

    fake_executor = executor.__new__(executor)
    fake_executor.device = device
    attach(
        fake_executor,
        {
            part: [interceptor(part, position) for position in range(len(listed))]
            for part, listed in functions.items()
        },
    )

    def through_kernel(text: str, position: int) -> Callable[..., Any]:
        """Like the part whose text the kernel stands for; kernels are not compiled."""
        function, own = functions[text][position], weights[text][position]

        def call(*arguments: Any) -> Any:
            fake = {name: _fake(_static(one), world) for name, one in own.items()}
            return _copied(_run_once(text, function, fake, arguments))

        return call

    attach(
        fake_executor,
        {
            name: [through_kernel(part.instead_of, k) for k in range(len(part.layers))]
            for name, part in parts.items()
            if part.kernel
        },
    )
    # What brings weights computes nothing.
    attach(
        fake_executor,
        {
            part: [lambda: None] * len(fetch.layers)
            for part, fetch in executor.fetches().items()
        },
    )
    with world.active():
        inputs = [
            _fake_input(spec, world, device)
            if isinstance(spec, TensorSpec)
            else [_fake_input(one, world, device) for one in spec]
            for spec in executor.inputs.values()
        ]
        if sizes is None or unsplit or not fake_executor.fills(sizes):
            run = fake_executor.sequential
        else:
            names = executor.stream_names
            fake_executor.streams = CpuStreams(*map(CallingThread, ("main", *names)))
            rows = {"phases": sizes} if isinstance(executor.split, PhaseSplit) else {}
            run = partial(fake_executor.step, **rows)
        # Symbols have no number of bytes.
        with nullcontext() if memory is None else memory:
            run(*inputs)
    if fixed := world.fixed():
        ties = ", ".join(f"{name} = {value}" for name, value in fixed.items())
        raise LoadError(
            "DFS805",
            f"the operations of {executor.__name__} only hold for {ties}, so they "
            "cannot be compiled for other sizes: load with `compile=False`.",
        )
    return observed


def _fake_input(
    spec: TensorSpec, world: FakeWorld, device: torch.device
) -> torch.Tensor:
    shape: list[Size] = []
    for size in spec.shape:
        factor, names = factors(size)
        value: Size = factor
        for name in names:
            value = value * world.sizes[name]
        shape.append(value)
    return torch.empty(shape, dtype=dtype_of(spec.dtype), device=device)


def _fake(layout: TensorLayout, world: FakeWorld) -> torch.Tensor:
    return torch.empty_strided(
        [world.value(size) for size in layout.shape],
        [world.value(stride) for stride in layout.strides],
        dtype=layout.dtype,
        device=layout.device,
    )


def fake_arguments(
    variant: Variant, constants: Sequence[torch.Tensor], world: FakeWorld
) -> list[Any]:
    """Fake inputs of a variant's graph, in the graph's order: `constants` are last."""
    with world.active():
        found: list[Any] = [_fake(layout, world) for _, layout in variant.weights]
        for layout in variant.arguments:
            match layout:
                case TensorLayout():
                    found.append(_fake(layout, world))
                case SizeInput(size):
                    found.append(world.value(size))
        found += [_fake(_static(constant), world) for constant in constants]
    return found


def _static(tensor: torch.Tensor) -> TensorLayout:
    return TensorLayout(
        tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device
    )


def _describe(part: str, value: Any, world: FakeWorld) -> ArgumentLayout:
    match value:
        case torch.Tensor():
            return TensorLayout(
                tuple(world.written(size) for size in value.shape),
                tuple(world.written(stride) for stride in value.stride()),
                value.dtype,
                value.device,
            )
        case torch.SymInt():
            written = world.written(value)
            return SizeInput(written) if isinstance(written, str) else Literal(written)
        case None | bool() | int() | float() | str():
            return Literal(value)
    raise LoadError(
        "DFS805",
        f"the part `{part}` is called with a {type(value).__name__}: parts take "
        "tensors, sizes and literals.",
    )


def _run_once(
    part: str,
    function: Callable[..., Any],
    weights: Mapping[str, torch.Tensor],
    arguments: Sequence[Any],
) -> Any:
    """Call `function`; refuse writes to memory that two of its inputs share.

    Compiled code takes each input for a memory of its own.
    """
    tensors = [
        (position, value)
        for position, value in enumerate(arguments)
        if isinstance(value, torch.Tensor)
    ]
    versions = [value._version for _, value in tensors]
    result = function(record(weights), *arguments)
    written = {
        value.untyped_storage()._cdata
        for (_, value), version in zip(tensors, versions, strict=True)
        if value._version != version
    }
    for storage in written:
        sharing = [
            str(position)
            for position, value in tensors
            if value.untyped_storage()._cdata == storage
        ]
        if len(sharing) > 1:
            raise LoadError(
                "DFS805",
                f"the part `{part}` writes into memory that several of its inputs "
                f"share (inputs {', '.join(sharing)} of `{function.__name__}`).",
            )
    return result


def _fresh_outputs(returned: Any, given: Sequence[Any]) -> int | None:
    """How many tensors a function returned, None if any shares memory with another."""
    listed = returned if isinstance(returned, tuple | list) else (returned,)
    if not all(isinstance(value, torch.Tensor) for value in listed):
        return None
    storages = [value.untyped_storage()._cdata for value in listed]
    known = {v.untyped_storage()._cdata for v in given if isinstance(v, torch.Tensor)}
    distinct = len(set(storages)) == len(storages)
    return len(storages) if distinct and not known & set(storages) else None


def _copied(value: Any) -> Any:
    """Fresh fake tensors like those that a function returned."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )
    if isinstance(value, tuple | list):
        return tuple(_copied(one) for one in value)
    return value
