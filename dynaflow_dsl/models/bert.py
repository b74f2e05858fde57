"""A trace target for Hugging Face's BERT with random weights."""

from __future__ import annotations

from typing import Unpack

import torch
from transformers import BertConfig, BertModel

from dynaflow_dsl.models.architecture import Architecture, WeightOptions
from dynaflow_dsl.trace import Entry, TraceSpec

BERT = Architecture(
    BertModel,
    BertConfig,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 512,
    },
    published={
        "base": {},
        "large": {
            "num_hidden_layers": 24,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    },
    fields={
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "intermediate": "intermediate_size",
        "vocab": "vocab_size",
    },
)


class Options(WeightOptions, total=False):
    """What the target may be given; sizes go before those of the shape."""

    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocab: int
    sequence: int
    initializer_range: float


class Encoder(torch.nn.Module):
    """BERT with its tokens and their mask as inputs, tensors as results."""

    def __init__(self, model: BertModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states [batch, sequence, hidden] and the pooled [batch, hidden].

        `input_ids` is int64 and `attention_mask` bool, [batch, sequence], true for
        tokens. What stands at padding means nothing.
        """
        output = self.model(input_ids=input_ids, attention_mask=attention_mask)
        return output.last_hidden_state, output.pooler_output


def encode(**options: Unpack[Options]) -> TraceSpec:
    """Texts of at most `sequence` tokens (16), padded on the right.

    Raises ValueError for an unknown size, and for texts longer than its positions.
    """
    sequence = options.get("sequence", 16)
    config = BERT.configuration(options, sequence)
    if not 1 <= sequence <= config.max_position_embeddings:
        raise ValueError(
            f"sequence is {sequence}; it must be at least 1 and at most the model's "
            f"positions, {config.max_position_embeddings}"
        )
    model = BERT.random(options, config)
    return TraceSpec(
        model=model,
        adapter=Encoder,
        root="model",
        entries={
            "encode": Entry(
                lambda sizes: texts(
                    sizes["batch"], sequence, config.vocab_size, model.device
                )
            )
        },
        dims={"input_ids": ("batch", None), "attention_mask": ("batch", None)},
        dimensions={"batch": (1, None)},
        facts={**BERT.facts(config), "sequence": sequence},
        device=options.get("device", "cpu"),
        dtype=model.dtype,
    )


def texts(
    rows: int, sequence: int, vocabulary: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tokens and the mask of their lengths, both [rows, sequence]."""
    lengths = torch.randint(1, sequence + 1, (rows, 1))
    ids = torch.randint(0, vocabulary, (rows, sequence))
    mask = torch.arange(sequence)[None, :] < lengths
    return ids.to(device), mask.to(device)
