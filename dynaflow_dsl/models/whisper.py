"""A trace target for the encoder of Hugging Face's Whisper with random weights."""

from __future__ import annotations

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from dynaflow_dsl.models.random_weights import random_model, shape_of
from dynaflow_dsl.trace import Entry, TraceSpec


class Encoder(torch.nn.Module):
    """The encoder of Whisper, two convolutions before its layers."""

    def __init__(self, model: WhisperForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_features: torch.Tensor) -> torch.Tensor:
        """Hidden states [batch, positions, hidden] of a spectrogram.

        `input_features` is float [batch, mel bins, 2 * positions].
        """
        encoder = self.model.get_encoder()
        hidden: torch.Tensor = encoder(input_features).last_hidden_state
        return hidden


def encode(
    size: str = "tiny",
    layers: int = 4,
    hidden: int = 64,
    heads: int = 4,
    intermediate: int = 128,
    mel_bins: int = 16,
    positions: int = 12,
    vocab: int = 512,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
    initializer_range: float = 0.3,
) -> TraceSpec:
    """Spectrograms of 2 * `positions` frames.

    `size` is `tiny`, made of the sizes given, or `small` or `large-v3`, as published;
    their `tiny` is larger than this one. Raises ValueError for any other.
    """
    tiny = {
        **_both_sides(layers, heads, intermediate),
        "d_model": hidden,
        "num_mel_bins": mel_bins,
        "max_source_positions": positions,
        "max_target_positions": 16,
        "vocab_size": vocab,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 3,
        "init_std": initializer_range,
    }
    small = {**_both_sides(12, 12, 3072), "d_model": 768}
    large = {
        **_both_sides(32, 20, 5120),
        "d_model": 1280,
        "num_mel_bins": 128,
        "vocab_size": 51866,
    }
    config = WhisperConfig(
        **shape_of(size, {"tiny": tiny, "small": small, "large-v3": large})
    )
    model = random_model(
        WhisperForConditionalGeneration,
        config,
        dtype=dtype,
        device=device,
        meta=meta,
        seed=seed,
    )
    shape = (config.num_mel_bins, 2 * config.max_source_positions)
    return TraceSpec(
        model=model,
        adapter=Encoder,
        root="model",
        entries={
            "encode": Entry(
                lambda sizes: (
                    torch.randn(
                        sizes["batch"], *shape, dtype=model.dtype, device=model.device
                    ),
                )
            )
        },
        dims={"input_features": ("batch", None, None)},
        dimensions={"batch": (1, None)},
        facts={
            "layers": config.encoder_layers,
            "hidden": config.d_model,
            "heads": config.encoder_attention_heads,
            "positions": config.max_source_positions,
        },
        device=device,
        dtype=model.dtype,
    )


def _both_sides(layers: int, heads: int, intermediate: int) -> dict[str, int]:
    """Encoder and decoder of Whisper have the same sizes."""
    return {
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": intermediate,
        "decoder_ffn_dim": intermediate,
    }
