"""A trace target for the transformer of Stable Diffusion 3 with random weights.

Its blocks hold two streams, tokens of an image and of a text, which meet in attention
alone (https://arxiv.org/abs/2403.03206).
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from diffusers import SD3Transformer2DModel

from dynaflow_dsl.models.architecture import TINY, WeightOptions, shape_of
from dynaflow_dsl.models.denoiser import Kind, denoiser_spec, random_denoiser
from dynaflow_dsl.trace import TraceSpec

_SHAPES: dict[str, dict[str, Any]] = {
    TINY: {
        "num_layers": 4,
        "num_attention_heads": 4,
        "attention_head_dim": 8,
        "in_channels": 4,
        "out_channels": 4,
        "sample_size": 8,
        "patch_size": 2,
        "joint_attention_dim": 24,
        "pooled_projection_dim": 16,
        "pos_embed_max_size": 8,
    },
    "medium": {
        "num_layers": 24,
        "num_attention_heads": 24,
        "pos_embed_max_size": 192,
    },
    "3.5-medium": {
        "num_layers": 24,
        "num_attention_heads": 24,
        "pos_embed_max_size": 384,
        "qk_norm": "rms_norm",
        "dual_attention_layers": tuple(range(13)),
    },
    "3.5-large": {
        "num_layers": 38,
        "num_attention_heads": 38,
        "pos_embed_max_size": 192,
        "qk_norm": "rms_norm",
    },
}
# Tokens of two encoders of CLIP together, and of T5.
_TEXT = 77 + 256


class Options(WeightOptions, total=False):
    """What the target may be given; sizes go before those of the shape.

    `image` is the height and width of latents, `text` the number of tokens. The first
    `dual` blocks attend a second time, to the image alone.
    """

    layers: int
    heads: int
    head_width: int
    channels: int
    image: int
    patch: int
    text: int
    dual: int


class JointDenoiser(torch.nn.Module):
    """One denoising step of images beside their texts."""

    def __init__(self, model: SD3Transformer2DModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        pooled_projections: torch.Tensor,
        timestep: torch.Tensor,
    ) -> torch.Tensor:
        """What is predicted of the latents, [batch, channels, height, width].

        `hidden_states` are the latents, `encoder_hidden_states` is float [batch, text,
        width], `pooled_projections` float [batch, width], `timestep` float [batch].
        """
        sample: torch.Tensor = self.model(
            hidden_states=hidden_states,
            encoder_hidden_states=encoder_hidden_states,
            pooled_projections=pooled_projections,
            timestep=timestep,
            return_dict=False,
        )[0]
        return sample


_NAMES = (
    "hidden_states",
    "encoder_hidden_states",
    "pooled_projections",
    "timestep",
)

SD3 = Kind(
    SD3Transformer2DModel,
    JointDenoiser,
    {name: name for name in _NAMES},
    {
        "hidden_states": ("batch", None, None, None),
        "encoder_hidden_states": ("batch", None, None),
        "pooled_projections": ("batch", None),
        "timestep": ("batch",),
    },
    {
        "layers": "num_layers",
        "heads": "num_attention_heads",
        "head_width": "attention_head_dim",
        "channels": "in_channels",
        "image": "sample_size",
        "patch": "patch_size",
    },
)


def denoise(**options: Unpack[Options]) -> TraceSpec:
    """One step for every latent image and text of a batch.

    `medium`, `3.5-medium` and `3.5-large` are published. With guidance the first half
    of the batch has empty texts, so that two pieces of it are the two branches. Raises
    ValueError for an unknown size or dtype.
    """
    shape = shape_of(SD3Transformer2DModel, options, _SHAPES, SD3.fields)
    width = shape.get("attention_head_dim", 64)
    shape["caption_projection_dim"] = shape["num_attention_heads"] * width
    if "dual" in options:
        shape["dual_attention_layers"] = tuple(range(options["dual"]))
    model = random_denoiser(SD3Transformer2DModel, shape, options)
    config, kind = model.config, model.dtype
    tiny = options.get("size", TINY) == TINY
    side, text = config.sample_size, options.get("text", 6 if tiny else _TEXT)
    shapes = {
        "hidden_states": (1, config.in_channels, side, side),
        "encoder_hidden_states": (1, text, config.joint_attention_dim),
        "pooled_projections": (1, config.pooled_projection_dim),
        "timestep": (1,),
    }
    examples = {name: torch.zeros(shape, dtype=kind) for name, shape in shapes.items()}
    return denoiser_spec(SD3, model, examples, device=options.get("device"))
