"""A trace target for Hugging Face's ViT with random weights."""

from __future__ import annotations

from typing import Unpack

import torch
from transformers import ViTConfig, ViTForImageClassification

from dynaflow_dsl.models.architecture import Architecture, WeightOptions
from dynaflow_dsl.trace import Entry, TraceSpec

VIT = Architecture(
    ViTForImageClassification,
    ViTConfig,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "image_size": 32,
        "patch_size": 8,
        "num_labels": 10,
    },
    published={
        "base": {"num_labels": 1000},
        "large": {
            "num_hidden_layers": 24,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "num_labels": 1000,
        },
    },
    fields={
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "intermediate": "intermediate_size",
        "image": "image_size",
        "patch": "patch_size",
        "labels": "num_labels",
    },
)


class Options(WeightOptions, total=False):
    """What the target may be given; sizes go before those of the shape."""

    layers: int
    hidden: int
    heads: int
    intermediate: int
    image: int
    patch: int
    labels: int
    initializer_range: float


class Classifier(torch.nn.Module):
    """ViT with an image as its input and logits as its result."""

    def __init__(self, model: ViTForImageClassification) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Logits, float [batch, labels], of float [batch, channels, height, width]."""
        logits: torch.Tensor = self.model(pixel_values=pixel_values).logits
        return logits


def classify(**options: Unpack[Options]) -> TraceSpec:
    """Square images of `image` pixels. Raises ValueError for an unknown size."""
    config = VIT.configuration(options)
    model = VIT.random(options, config)
    shape = (config.num_channels, config.image_size, config.image_size)
    return TraceSpec(
        model=model,
        adapter=Classifier,
        root="model",
        entries={
            "classify": Entry(
                lambda sizes: (
                    torch.randn(
                        sizes["batch"], *shape, dtype=model.dtype, device=model.device
                    ),
                )
            )
        },
        dims={"pixel_values": ("batch", None, None, None)},
        dimensions={"batch": (1, None)},
        facts=VIT.facts(config),
        device=options.get("device", "cpu"),
        dtype=model.dtype,
    )
