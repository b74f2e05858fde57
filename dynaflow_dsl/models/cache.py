"""The adapter that turns a decoder's KV cache into plain inputs, and what goes in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import StaticLayer


class SlotLayer(StaticLayer):  # type: ignore[misc]
    """One layer's keys and values, written at positions that the caller gives.

    The library's own static layer counts positions in a tensor that all rows share:
    run once per piece of a batch, it would count each piece.
    """

    def __init__(
        self, keys: torch.Tensor, values: torch.Tensor, slot: torch.Tensor
    ) -> None:
        super().__init__(max_cache_len=keys.shape[2])
        self.keys, self.values, self.slot = keys, values, slot
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new positions in place; return the whole cache."""
        self.keys.index_copy_(2, self.slot, key_states)
        self.values.index_copy_(2, self.slot, value_states)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Positions come from the caller, so nothing is counted here."""
        return 0


class CachedDecoder(torch.nn.Module):
    """A causal language model with its cache, positions and mask as inputs."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        position: torch.Tensor,
        mask: torch.Tensor,
        slot: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
    ) -> torch.Tensor:
        """Logits of the last position, float [batch, 1, vocab].

        `input_ids` and `position` are int64 [batch, sequence]; a position is the
        token's index in its own text, whatever padding stands before it. `slot` is
        int64 [sequence]: the places in the cache that are written, in all rows.
        `mask` is bool [batch, capacity], true for places of the cache that hold a token
        of the row, those written now included. `keys` and `values` have one tensor
        [batch, kv_heads, capacity, head_dim] per layer.

        With prompts padded on the left, every row's next token follows from its last
        position, so greedy generation needs no other logits.
        """
        layers = [
            SlotLayer(key, value, slot) for key, value in zip(keys, values, strict=True)
        ]
        many = input_ids.shape[1] > 1
        output = self.model(
            input_ids=input_ids,
            attention_mask=_causal(mask, slot) if many else mask[:, None, None, :],
            position_ids=position,
            past_key_values=Cache(layers=layers),
            use_cache=True,
            **({"logits_to_keep": 1} if many else {}),
        )
        logits: torch.Tensor = output.logits
        return logits


def cache_shape(
    model: PreTrainedModel, rows: int, capacity: int
) -> tuple[int, int, int, int]:
    """Shape of one layer's keys: rows, key-value heads, capacity, width of a head."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None)
    width = getattr(config, "head_dim", None)
    return (
        rows,
        heads or config.num_attention_heads,
        capacity,
        width or config.hidden_size // config.num_attention_heads,
    )


def greedy_inputs(
    lengths: Iterable[int], sequence: int, capacity: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Position, mask and slot for prompts of `lengths` padded on the left.

    Shapes are int64 [batch, sequence], bool [batch, capacity] and int64 [sequence].
    Padding tokens get position 0; the mask is false for them and for places that no
    token has been written to.
    """
    slot = torch.arange(sequence)
    padding = sequence - torch.tensor(list(lengths))
    position = (slot[None, :] - padding[:, None]).clamp(min=0)
    place = torch.arange(capacity)
    mask = (place[None, :] >= padding[:, None]) & (place[None, :] < sequence)
    return position, mask, slot


def _causal(mask: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    """Which place each position attends to, bool [batch, 1, sequence, capacity].

    Every position attends to itself, padding included: a row of the softmax with
    nothing to attend to could put NaN into the cache.
    """
    place = torch.arange(mask.shape[1], device=mask.device)
    written = slot[:, None]
    before = torch.logical_and(mask[:, None, :], place <= written)
    return torch.logical_or(before, place == written)[:, None, :, :]
