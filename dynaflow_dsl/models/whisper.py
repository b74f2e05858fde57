"""A trace target for the encoder of Hugging Face's Whisper with random weights."""

from __future__ import annotations

from typing import Unpack

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from dynaflow_dsl.models.architecture import Architecture, WeightOptions
from dynaflow_dsl.trace import Entry, TraceSpec

# Encoder and decoder have the same sizes.
_LAYERS = ("encoder_layers", "decoder_layers")
_HEADS = ("encoder_attention_heads", "decoder_attention_heads")
_INTERMEDIATE = ("encoder_ffn_dim", "decoder_ffn_dim")

WHISPER = Architecture(
    WhisperForConditionalGeneration,
    WhisperConfig,
    tiny={
        **dict.fromkeys(_LAYERS, 4),
        **dict.fromkeys(_HEADS, 4),
        **dict.fromkeys(_INTERMEDIATE, 128),
        "d_model": 64,
        "num_mel_bins": 16,
        "max_source_positions": 12,
        "max_target_positions": 16,
        "vocab_size": 512,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 3,
    },
    published={
        "small": {
            **dict.fromkeys(_LAYERS, 12),
            **dict.fromkeys(_HEADS, 12),
            **dict.fromkeys(_INTERMEDIATE, 3072),
            "d_model": 768,
        },
        "large-v3": {
            **dict.fromkeys(_LAYERS, 32),
            **dict.fromkeys(_HEADS, 20),
            **dict.fromkeys(_INTERMEDIATE, 5120),
            "d_model": 1280,
            "num_mel_bins": 128,
            "vocab_size": 51866,
        },
    },
    fields={
        "layers": _LAYERS,
        "hidden": "d_model",
        "heads": _HEADS,
        "intermediate": _INTERMEDIATE,
        "mel_bins": "num_mel_bins",
        "positions": "max_source_positions",
        "vocab": "vocab_size",
    },
    spread="init_std",
)


class Options(WeightOptions, total=False):
    """What the target may be given; sizes go before those of the shape.

    The published `tiny` is larger than the one here.
    """

    layers: int
    hidden: int
    heads: int
    intermediate: int
    mel_bins: int
    positions: int
    vocab: int
    initializer_range: float


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


def encode(**options: Unpack[Options]) -> TraceSpec:
    """Spectrograms of 2 * `positions` frames. Raises ValueError for an unknown size."""
    config = WHISPER.configuration(options)
    model = WHISPER.random(options, config)
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
        facts=WHISPER.facts(config),
        device=options.get("device", "cpu"),
        dtype=model.dtype,
    )
