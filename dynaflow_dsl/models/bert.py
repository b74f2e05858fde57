"""A trace target for Hugging Face's BERT with random weights."""

from __future__ import annotations

import torch
from transformers import BertConfig, BertModel

from dynaflow_dsl.models.random_weights import random_model, shape_of
from dynaflow_dsl.trace import Entry, TraceSpec


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


def encode(
    size: str = "tiny",
    layers: int = 4,
    hidden: int = 64,
    heads: int = 4,
    intermediate: int = 128,
    vocab: int = 512,
    sequence: int = 16,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
    initializer_range: float = 0.3,
) -> TraceSpec:
    """Texts of at most `sequence` tokens, padded on the right.

    `size` is `tiny`, made of the sizes given, or `base` or `large`, as published.
    Raises ValueError for any other.
    """
    tiny = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
        "max_position_embeddings": max(sequence, 64),
        "initializer_range": initializer_range,
    }
    large = {
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    }
    config = BertConfig(**shape_of(size, {"tiny": tiny, "base": {}, "large": large}))
    model = random_model(
        BertModel, config, dtype=dtype, device=device, meta=meta, seed=seed
    )
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
        facts={
            "layers": config.num_hidden_layers,
            "hidden": config.hidden_size,
            "heads": config.num_attention_heads,
            "sequence": sequence,
        },
        device=device,
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
