"""A trace target for the diffusion transformer of `diffusers` with random weights."""

from __future__ import annotations

from typing import Unpack

import torch
from diffusers import DiTTransformer2DModel

from dynaflow_dsl.models.architecture import TINY, WeightOptions, shape_of
from dynaflow_dsl.models.denoiser import ENTRY, Kind, random_denoiser
from dynaflow_dsl.trace import Entry, TraceSpec

_SHAPES = {
    TINY: {
        "num_layers": 4,
        "num_attention_heads": 4,
        "attention_head_dim": 16,
        "in_channels": 4,
        "sample_size": 8,
        "patch_size": 2,
        "num_embeds_ada_norm": 10,
    },
    "xl": {"in_channels": 4},
}
_FIELDS = {
    "layers": "num_layers",
    "heads": "num_attention_heads",
    "head_width": "attention_head_dim",
    "channels": "in_channels",
    "image": "sample_size",
    "patch": "patch_size",
    "labels": "num_embeds_ada_norm",
}


class Options(WeightOptions, total=False):
    """What the target may be given; sizes go before those of the shape."""

    layers: int
    heads: int
    head_width: int
    channels: int
    image: int
    patch: int
    labels: int


class Denoiser(torch.nn.Module):
    """One denoising step of a latent image."""

    def __init__(self, model: DiTTransformer2DModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, latents: torch.Tensor, timestep: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Predicted noise and variance [batch, 2 * channels, height, width].

        `latents` is float [batch, channels, height, width]; `timestep` and `labels`,
        the class of the image, are int64 [batch].
        """
        sample: torch.Tensor = self.model(
            latents, timestep=timestep, class_labels=labels, return_dict=False
        )[0]
        return sample


DIT = Kind(
    DiTTransformer2DModel,
    Denoiser,
    {"hidden_states": "latents", "timestep": "timestep", "class_labels": "labels"},
    {
        "latents": ("batch", None, None, None),
        "timestep": ("batch",),
        "labels": ("batch",),
    },
    _FIELDS,
)


def denoise(**options: Unpack[Options]) -> TraceSpec:
    """One step for every latent image of a batch, each at a time of its own.

    `xl` is published with patches of two. Raises ValueError for an unknown size or
    dtype.
    """
    shape = shape_of(DiTTransformer2DModel, options, _SHAPES, _FIELDS)
    # Noise and its variance.
    shape["out_channels"] = 2 * shape["in_channels"]
    model = random_denoiser(DiTTransformer2DModel, shape, options)
    config, kind = model.config, model.dtype

    def arguments(rows: int) -> tuple[torch.Tensor, ...]:
        latents = torch.randn(
            rows, config.in_channels, config.sample_size, config.sample_size, dtype=kind
        )
        times = torch.randint(0, 1000, (rows,))
        classes = torch.randint(0, config.num_embeds_ada_norm, (rows,))
        return tuple(item.to(model.device) for item in (latents, times, classes))

    return TraceSpec(
        model=model,
        adapter=Denoiser,
        root="model",
        entries={ENTRY: Entry(lambda sizes: arguments(sizes["batch"]))},
        dims=DIT.dims,
        dimensions={"batch": (1, None)},
        facts=DIT.facts(model),
        device=options.get("device", "cpu"),
        dtype=kind,
    )
