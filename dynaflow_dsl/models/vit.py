"""A trace target for Hugging Face's ViT with random weights."""

from __future__ import annotations

import torch
from transformers import ViTConfig, ViTForImageClassification

from dynaflow_dsl.models.random_weights import random_model, shape_of
from dynaflow_dsl.trace import Entry, TraceSpec


class Classifier(torch.nn.Module):
    """ViT with an image as its input and logits as its result."""

    def __init__(self, model: ViTForImageClassification) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Logits, float [batch, labels], of float [batch, channels, height, width]."""
        logits: torch.Tensor = self.model(pixel_values=pixel_values).logits
        return logits


def classify(
    size: str = "tiny",
    layers: int = 4,
    hidden: int = 64,
    heads: int = 4,
    intermediate: int = 128,
    image: int = 32,
    patch: int = 8,
    labels: int = 10,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
    initializer_range: float = 0.3,
) -> TraceSpec:
    """Square images of `image` pixels.

    `size` is `tiny`, made of the sizes given, or `base` or `large`, as published.
    Raises ValueError for any other.
    """
    tiny = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": intermediate,
        "image_size": image,
        "patch_size": patch,
        "num_labels": labels,
        "initializer_range": initializer_range,
    }
    base = {"num_labels": 1000}
    large = {
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "num_labels": 1000,
    }
    config = ViTConfig(**shape_of(size, {"tiny": tiny, "base": base, "large": large}))
    model = random_model(
        ViTForImageClassification,
        config,
        dtype=dtype,
        device=device,
        meta=meta,
        seed=seed,
    )
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
        facts={
            "layers": config.num_hidden_layers,
            "hidden": config.hidden_size,
            "heads": config.num_attention_heads,
            "image": config.image_size,
        },
        device=device,
        dtype=model.dtype,
    )
