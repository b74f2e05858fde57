"""Transformers of `diffusers` as trace targets: what they take, by which names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import ModelMixin

from dynaflow_dsl.models.architecture import WeightOptions
from dynaflow_dsl.trace import Entry, Scalar, TraceSpec

ENTRY = "denoise"


@dataclass(frozen=True, slots=True)
class Kind:
    """One class of transformers.

    `adapter` gives it a flat signature of tensors. `arguments` are those of the
    adapter by what the class calls them, `dims` their axes; `fields` says what the
    configuration calls its sizes, the facts of a target.
    """

    model: type[ModelMixin]
    adapter: Callable[[torch.nn.Module], torch.nn.Module]
    arguments: Mapping[str, str]
    dims: Mapping[str, tuple[str | None, ...]]
    fields: Mapping[str, str]

    def facts(self, model: ModelMixin) -> dict[str, Scalar]:
        """The sizes of a model, by the names of a target's options."""
        config = model.config
        found = {name: getattr(config, field) for name, field in self.fields.items()}
        hidden = config.num_attention_heads * config.attention_head_dim
        known = {n: size for n, size in found.items() if isinstance(size, int)}
        return {**known, "hidden": hidden}


def random_denoiser(
    model_class: type[ModelMixin], shape: Mapping[str, Any], options: WeightOptions
) -> ModelMixin:
    """A model of a shape with random weights in evaluation mode, the same for a seed.

    Raises ValueError for an unknown dtype.
    """
    dtype = options.get("dtype", "float32")
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"dtype is {dtype!r}, which is none of torch's")
    place = "meta" if options.get("meta") else options.get("device", "cpu")
    with torch.random.fork_rng(), torch.device(place):
        torch.manual_seed(options.get("seed", 0))
        model = model_class(**shape)
    if kind != torch.float32:
        model = model.to(kind)
    return model.eval().requires_grad_(False)


def denoiser_spec(
    kind: Kind,
    model: ModelMixin,
    examples: Mapping[str, torch.Tensor],
    *,
    device: str | None = None,
) -> TraceSpec:
    """A trace target for one step of a transformer, with any number of rows.

    `examples` are arguments of one call, by the names of the adapter and in its order;
    those whose axes are named are drawn anew for other numbers of rows. `device` says
    where a model on the meta device is to run.
    """

    def arguments(sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
        return tuple(
            _example(tensor, kind.dims.get(name, ()), sizes).to(model.device)
            for name, tensor in examples.items()
        )

    return TraceSpec(
        model=model,
        adapter=kind.adapter,
        root="model",
        entries={ENTRY: Entry(arguments)},
        dims={name: kind.dims[name] for name in examples if name in kind.dims},
        dimensions={"batch": (1, None)},
        facts=kind.facts(model),
        device=device or model.device.type,
        dtype=model.dtype,
    )


def _example(
    tensor: torch.Tensor, axes: tuple[str | None, ...], sizes: Mapping[str, int]
) -> torch.Tensor:
    if not any(axes):
        return tensor.clone()
    shape = [
        size if name is None else sizes[name]
        for size, name in zip(tensor.shape, axes, strict=True)
    ]
    if tensor.is_floating_point():
        return torch.randn(shape, dtype=tensor.dtype)
    # Times and classes: whatever they are, small numbers are valid.
    return torch.randint(0, 2, shape, dtype=tensor.dtype)
