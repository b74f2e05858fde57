"""A trace target for the transformer of Flux with random weights.

Its first blocks hold two streams, tokens of an image and of a text, which meet in
attention alone; in those after them both are one sequence.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from diffusers import FluxTransformer2DModel

from dynaflow_dsl.models.architecture import TINY, WeightOptions, shape_of
from dynaflow_dsl.models.denoiser import Kind, denoiser_spec, random_denoiser
from dynaflow_dsl.trace import TraceSpec

_SHAPES: dict[str, dict[str, Any]] = {
    TINY: {
        "num_layers": 3,
        "num_single_layers": 2,
        "num_attention_heads": 4,
        "attention_head_dim": 8,
        "in_channels": 8,
        "joint_attention_dim": 24,
        "pooled_projection_dim": 16,
        "axes_dims_rope": (2, 2, 4),
    },
    "schnell": {},
    "dev": {"guidance_embeds": True},
}


class Options(WeightOptions, total=False):
    """What the target may be given; sizes go before those of the shape.

    `image` is the height and width in tokens, `text` the number of tokens.
    """

    layers: int
    single_layers: int
    heads: int
    channels: int
    image: int
    text: int


class FlowDenoiser(torch.nn.Module):
    """One denoising step of images beside their texts."""

    def __init__(self, model: FluxTransformer2DModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        pooled_projections: torch.Tensor,
        timestep: torch.Tensor,
        img_ids: torch.Tensor,
        txt_ids: torch.Tensor,
        guidance: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """What is predicted of the latents, [batch, tokens, channels].

        `hidden_states` are the latents in patches, `encoder_hidden_states` is float
        [batch, text, width], `pooled_projections` float [batch, width]. `timestep` and
        `guidance` are float [batch], the latter for models that take it; `img_ids` and
        `txt_ids`, float [tokens, 3] and [text, 3], are the places of tokens.
        """
        sample: torch.Tensor = self.model(
            hidden_states=hidden_states,
            encoder_hidden_states=encoder_hidden_states,
            pooled_projections=pooled_projections,
            timestep=timestep,
            img_ids=img_ids,
            txt_ids=txt_ids,
            guidance=guidance,
            return_dict=False,
        )[0]
        return sample


_NAMES = (
    "hidden_states",
    "encoder_hidden_states",
    "pooled_projections",
    "timestep",
    "img_ids",
    "txt_ids",
    "guidance",
)

FLUX = Kind(
    FluxTransformer2DModel,
    FlowDenoiser,
    {name: name for name in _NAMES},
    {
        "hidden_states": ("batch", None, None),
        "encoder_hidden_states": ("batch", None, None),
        "pooled_projections": ("batch", None),
        "timestep": ("batch",),
        "guidance": ("batch",),
    },
    {
        "layers": "num_layers",
        "single_layers": "num_single_layers",
        "heads": "num_attention_heads",
        "channels": "in_channels",
    },
)


def denoise(**options: Unpack[Options]) -> TraceSpec:
    """One step for every latent image and text of a batch.

    `schnell` and `dev` are published. Raises ValueError for an unknown size or dtype.
    """
    shape = shape_of(FluxTransformer2DModel, options, _SHAPES, FLUX.fields)
    model = random_denoiser(FluxTransformer2DModel, shape, options)
    config, kind = model.config, model.dtype
    tiny = options.get("size", TINY) == TINY
    side = options.get("image", 4 if tiny else 64)
    text = options.get("text", 6 if tiny else 512)
    places = torch.zeros(side, side, 3, dtype=kind)
    places[..., 1] += torch.arange(side)[:, None]
    places[..., 2] += torch.arange(side)[None, :]
    shapes = {
        "hidden_states": (1, side * side, config.in_channels),
        "encoder_hidden_states": (1, text, config.joint_attention_dim),
        "pooled_projections": (1, config.pooled_projection_dim),
        "timestep": (1,),
    }
    examples = {name: torch.zeros(shape, dtype=kind) for name, shape in shapes.items()}
    examples["img_ids"] = places.view(side * side, 3)
    examples["txt_ids"] = torch.zeros(text, 3, dtype=kind)
    if config.guidance_embeds:
        examples["guidance"] = torch.zeros(1, dtype=kind)
    return denoiser_spec(FLUX, model, examples, device=options.get("device"))
