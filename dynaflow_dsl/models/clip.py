"""Trace targets for Hugging Face's CLIP with random weights.

`both` has the two towers, which do not read each other; `text` and `vision` have one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import torch
from transformers import CLIPConfig, CLIPModel

from dynaflow_dsl.models.architecture import Architecture, WeightOptions
from dynaflow_dsl.models.bert import texts
from dynaflow_dsl.trace import Entry, TraceSpec

_TOWERS = ("text_config", "vision_config")


def _both(field: str) -> tuple[str, ...]:
    return tuple(f"{tower}.{field}" for tower in _TOWERS)


CLIP = Architecture(
    CLIPModel,
    CLIPConfig,
    tiny={
        **dict.fromkeys(_both("num_hidden_layers"), 4),
        **dict.fromkeys(_both("hidden_size"), 64),
        **dict.fromkeys(_both("num_attention_heads"), 4),
        **dict.fromkeys(_both("intermediate_size"), 128),
        "text_config.vocab_size": 512,
        "text_config.max_position_embeddings": 16,
        "text_config.bos_token_id": 0,
        "text_config.pad_token_id": 1,
        "text_config.eos_token_id": None,
        "vision_config.image_size": 32,
        "vision_config.patch_size": 8,
        "projection_dim": 32,
        "initializer_factor": 10.0,
    },
    published={
        "base": {},
        "large": {
            "projection_dim": 768,
            "text_config.hidden_size": 768,
            "text_config.num_attention_heads": 12,
            "text_config.intermediate_size": 3072,
            "vision_config.hidden_size": 1024,
            "vision_config.intermediate_size": 4096,
            "vision_config.num_hidden_layers": 24,
            "vision_config.num_attention_heads": 16,
            "vision_config.patch_size": 14,
        },
    },
    fields={
        "layers": _both("num_hidden_layers"),
        "hidden": _both("hidden_size"),
        "heads": _both("num_attention_heads"),
        "intermediate": _both("intermediate_size"),
        "projection": "projection_dim",
        "vocab": "text_config.vocab_size",
        "sequence": "text_config.max_position_embeddings",
        "image": "vision_config.image_size",
        "patch": "vision_config.patch_size",
    },
    spread="initializer_factor",
)


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


class Options(WeightOptions, total=False):
    """What the targets may be given, one size for both towers.

    Sizes go before those of the shape; texts have `sequence` tokens, which is all that
    the model has positions for.
    """

    layers: int
    hidden: int
    heads: int
    intermediate: int
    projection: int
    vocab: int
    sequence: int
    image: int
    patch: int


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
    config = CLIP.configuration(options)
    words = config.text_config
    # A text ends with the last token, in published shapes too.
    words.eos_token_id = words.vocab_size - 1
    model = CLIP.random(options, config)
    length = words.max_position_embeddings
    vision = config.vision_config
    shape = (vision.num_channels, vision.image_size, vision.image_size)

    def arguments(rows: int) -> tuple[torch.Tensor, ...]:
        given: tuple[torch.Tensor, ...] = ()
        if entry != "vision":
            given += texts(rows, length, words.vocab_size, model.device)
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
        facts={**CLIP.facts(config), "vision_layers": vision.num_hidden_layers},
        device=options.get("device", "cpu"),
        dtype=model.dtype,
    )
