"""What an architecture is in the tables, and the sizes that many of them share.

Each is one class with a tiny random configuration. Sizes are chosen so that no two
axes are equal by accident; everything else is the configuration's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WORDS, LENGTH = 64, 6

Inputs = Mapping[str, tuple[Any, ...]]

# What a model is called with: its arguments, as kind and shape without the batch.
TOKENS: Inputs = {"input_ids": ("token", LENGTH), "attention_mask": ("mask", LENGTH)}
UNMASKED: Inputs = {"input_ids": ("token", LENGTH)}
PAIRS: Inputs = {
    **TOKENS,
    "decoder_input_ids": ("token", 4),
    "decoder_attention_mask": ("mask", 4),
}
BOXES: Inputs = {**TOKENS, "bbox": ("box", LENGTH, 4)}


def pixels(size: int, channels: int = 3) -> Inputs:
    """Square images."""
    return {"pixel_values": ("number", channels, size, size)}


def sound(length: int) -> Inputs:
    """Raw sound."""
    return {"input_values": ("number", length)}


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model class: its group in the table, its configuration and its inputs.

    `config` is the name of the configuration class, by default that of the family;
    `nested` are the configurations inside it. `call` names the method that is called
    when it is not the model itself.
    """

    group: str
    model: str
    sizes: Mapping[str, Any]
    inputs: Inputs = field(default_factory=lambda: TOKENS)
    config: str = ""
    call: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """The class, and the method where one is named."""
        call = f".{self.call}" if self.call else ""
        return f"{self.model}{call}{f' ({self.note})' if self.note else ''}"


def sizes(**more: Any) -> dict[str, Any]:
    """Sizes of a small transformer, under their usual names."""
    return {
        "vocab_size": WORDS,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


def grouped(**more: Any) -> dict[str, Any]:
    """The same with grouped heads."""
    return sizes(num_key_value_heads=2, head_dim=8, **more)


def experts(**more: Any) -> dict[str, Any]:
    """The same with four experts, two for each token."""
    return grouped(
        moe_intermediate_size=16,
        num_experts=4,
        num_local_experts=4,
        num_experts_per_tok=2,
        **more,
    )


def vision(**more: Any) -> dict[str, Any]:
    """Sizes of an encoder of small images."""
    found = sizes(image_size=16, patch_size=4, **more)
    return {k: v for k, v in found.items() if k not in _OF_TEXT}


def text(**more: Any) -> dict[str, Any]:
    """Sizes of the text side of a model of several kinds of input."""
    return sizes(**more)


_OF_TEXT = (
    "vocab_size",
    "max_position_embeddings",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)
SEQ2SEQ: dict[str, Any] = {
    "vocab_size": WORDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
T5: dict[str, Any] = {
    "vocab_size": WORDS,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}
SPEECH = sizes(
    conv_dim=(16, 16),
    conv_kernel=(4, 3),
    conv_stride=(2, 2),
    num_feat_extract_layers=2,
    num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2,
)
TOWERS = {
    "text_config": text(),
    "vision_config": vision(),
    "projection_dim": 16,
}
SERIES_SIZES: dict[str, Any] = {
    "num_input_channels": 3,
    "context_length": 16,
    "prediction_length": 4,
    "patch_length": 4,
    "patch_stride": 4,
}
