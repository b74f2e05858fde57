"""Trace targets for Hugging Face's CLIP with random weights.

`both` has the two towers, which do not read each other; `text` and `vision` have one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import torch
from transformers import CLIPConfig, CLIPModel

from dynaflow_dsl.models.bert import texts
from dynaflow_dsl.models.random_weights import random_model, shape_of
from dynaflow_dsl.trace import Entry, TraceSpec


class Text(torch.nn.Module):
    """The text tower and its projection."""

    def __init__(self, model: CLIPModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        """Features [batch, projection] of texts, int64 and bool [batch, sequence].

        A text's feature is that of its first end token; what follows is padding.
        """
        output = self.model.get_text_features(
            input_ids=input_ids, attention_mask=attention_mask
        )
        features: torch.Tensor = output.pooler_output
        return features


class Vision(torch.nn.Module):
    """The vision tower and its projection."""

    def __init__(self, model: CLIPModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Features [batch, projection] of float [batch, channels, height, width]."""
        output = self.model.get_image_features(pixel_values=pixel_values)
        features: torch.Tensor = output.pooler_output
        return features


class Both(torch.nn.Module):
    """Both towers. Comparing their features is left to the caller: it pairs rows."""

    def __init__(self, model: CLIPModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        pixel_values: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Features of texts and of images, [batch, projection] each."""
        text = self.model.get_text_features(
            input_ids=input_ids, attention_mask=attention_mask
        )
        vision = self.model.get_image_features(pixel_values=pixel_values)
        return text.pooler_output, vision.pooler_output


class Options(TypedDict, total=False):
    """What the targets may be given; both towers have the same sizes.

    `size` is `tiny`, made of the sizes given, or `base`, as published with patches of
    32 pixels.
    """

    size: str
    layers: int
    hidden: int
    heads: int
    intermediate: int
    projection: int
    vocab: int
    sequence: int
    image: int
    patch: int
    dtype: str
    device: str
    meta: bool
    seed: int


def both(**options: Unpack[Options]) -> TraceSpec:
    """A text and an image for every row. Raises ValueError for an unknown size."""
    return _spec("both", Both, dict(options))


def text(**options: Unpack[Options]) -> TraceSpec:
    """A text for every row. Raises ValueError for an unknown size."""
    return _spec("text", Text, dict(options))


def vision(**options: Unpack[Options]) -> TraceSpec:
    """An image for every row. Raises ValueError for an unknown size."""
    return _spec("vision", Vision, dict(options))


def _spec(
    entry: str, adapter: Callable[[Any], torch.nn.Module], options: dict[str, Any]
) -> TraceSpec:
    config = _configuration(options)
    sequence = options.get("sequence", config.text_config.max_position_embeddings)
    model = random_model(
        CLIPModel,
        config,
        dtype=options.get("dtype", "float32"),
        device=options.get("device", "cpu"),
        meta=options.get("meta", False),
        seed=options.get("seed", 0),
    )
    vision = config.vision_config
    shape = (vision.num_channels, vision.image_size, vision.image_size)

    def arguments(rows: int) -> tuple[torch.Tensor, ...]:
        given: tuple[torch.Tensor, ...] = ()
        if entry != "vision":
            given += texts(rows, sequence, config.text_config.vocab_size, model.device)
        if entry != "text":
            image = torch.randn(rows, *shape, dtype=model.dtype, device=model.device)
            given += (image,)
        return given

    dims: dict[str, tuple[str | None, ...]] = {}
    if entry != "vision":
        dims |= {"input_ids": ("batch", None), "attention_mask": ("batch", None)}
    if entry != "text":
        dims |= {"pixel_values": ("batch", None, None, None)}
    return TraceSpec(
        model=model,
        adapter=adapter,
        root="model",
        entries={entry: Entry(lambda sizes: arguments(sizes["batch"]))},
        dims=dims,
        dimensions={"batch": (1, None)},
        facts={
            "layers": config.text_config.num_hidden_layers,
            "vision_layers": vision.num_hidden_layers,
            "projection": config.projection_dim,
            "sequence": sequence,
        },
        device=options.get("device", "cpu"),
        dtype=model.dtype,
    )


def _configuration(options: dict[str, Any]) -> CLIPConfig:
    tower = {
        "num_hidden_layers": options.get("layers", 4),
        "hidden_size": options.get("hidden", 64),
        "num_attention_heads": options.get("heads", 4),
        "intermediate_size": options.get("intermediate", 128),
    }
    vocabulary = options.get("vocab", 512)
    tiny = {
        "text_config": {
            **tower,
            "vocab_size": vocabulary,
            "max_position_embeddings": options.get("sequence", 16),
            "bos_token_id": 0,
            "eos_token_id": vocabulary - 1,
            "pad_token_id": 1,
        },
        "vision_config": {
            **tower,
            "image_size": options.get("image", 32),
            "patch_size": options.get("patch", 8),
        },
        "projection_dim": options.get("projection", 32),
        # As other targets: so wide that features differ between rows.
        "initializer_factor": 10.0,
    }
    return CLIPConfig(
        **shape_of(options.get("size", "tiny"), {"tiny": tiny, "base": {}})
    )
