"""A trace target for the diffusion transformer of `diffusers` with random weights."""

from __future__ import annotations

import torch
from diffusers import DiTTransformer2DModel

from dynaflow_dsl.models.random_weights import shape_of
from dynaflow_dsl.trace import Entry, TraceSpec


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


def denoise(
    size: str = "tiny",
    layers: int = 4,
    heads: int = 4,
    head_width: int = 16,
    channels: int = 4,
    image: int = 8,
    patch: int = 2,
    labels: int = 10,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
) -> TraceSpec:
    """One step for every latent image of a batch, each at a time of its own.

    `size` is `tiny`, made of the sizes given, or `xl`, published with patches of two.
    Raises ValueError for any other, and for an unknown dtype.
    """
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"dtype is {dtype!r}, which is none of torch's")
    tiny = {
        "num_layers": layers,
        "num_attention_heads": heads,
        "attention_head_dim": head_width,
        "in_channels": channels,
        "out_channels": 2 * channels,
        "sample_size": image,
        "patch_size": patch,
        "num_embeds_ada_norm": labels,
    }
    extra_large = {"out_channels": 8}
    shape = shape_of(size, {"tiny": tiny, "xl": extra_large})
    with torch.random.fork_rng(), torch.device("meta" if meta else device):
        torch.manual_seed(seed)
        model = DiTTransformer2DModel(**shape)
    if kind != torch.float32:
        model = model.to(kind)
    model = model.eval().requires_grad_(False)
    config = model.config

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
        entries={"denoise": Entry(lambda sizes: arguments(sizes["batch"]))},
        dims={
            "latents": ("batch", None, None, None),
            "timestep": ("batch",),
            "labels": ("batch",),
        },
        dimensions={"batch": (1, None)},
        facts={
            "layers": config.num_layers,
            "hidden": config.num_attention_heads * config.attention_head_dim,
            "heads": config.num_attention_heads,
        },
        device=device,
        dtype=kind,
    )
