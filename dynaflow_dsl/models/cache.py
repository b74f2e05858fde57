"""The adapter that turns a decoder's KV cache into plain inputs, and what goes in."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import StaticLayer

from dynaflow_dsl.trace.lines import line_of_traceback


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

    def get_seq_length(self) -> torch.Tensor:
        """The place that is written first, a scalar; the model's masks start there."""
        return self.slot[0]


class CachedDecoder(torch.nn.Module):
    """A causal language model with its cache, positions and mask as inputs."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        # How this model is called is the same in each step.
        self.takes = frozenset(inspect.signature(model.forward).parameters)
        self.plain = attends_to_everything(model)

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
        int64 [sequence]: the places in the cache that are written, in all rows, one
        after the other. `mask` is bool [batch, capacity], true for places of the cache
        that hold a token of the row, those written now included. `keys` and `values`
        have one tensor [batch, heads, capacity, width] per layer; what a layer keeps is
        its own choice, DeepSeek's latent vectors for example.

        With prompts padded on the left, every row's next token follows from its last
        position, so greedy generation needs no other logits.
        """
        layers = [
            SlotLayer(key, value, slot) for key, value in zip(keys, values, strict=True)
        ]
        many = input_ids.shape[1] > 1
        attention_mask = mask
        if self.plain:
            attention_mask = _causal(mask, slot) if many else mask[:, None, None, :]
        options: dict[str, Any] = {}
        if "position_ids" in self.takes:
            options["position_ids"] = position
        if many and "logits_to_keep" in self.takes:
            options["logits_to_keep"] = 1
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=Cache(layers=layers),
            use_cache=True,
            **options,
        )
        logits: torch.Tensor = output.logits
        return logits if "logits_to_keep" in self.takes else logits[:, -1:]


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps of a token: heads and width of its keys and its values."""

    keys: tuple[int, int]
    values: tuple[int, int]
    dtype: torch.dtype


def cache_shapes(model: PreTrainedModel) -> tuple[LayerShape, ...]:
    """What each layer of a decoder keeps of a token, found by running one token.

    A configuration does not say it: latent attention keeps other things than heads.
    Raises ValueError for layers that keep no keys and values of their own.
    """
    count = model.config.get_text_config().num_hidden_layers
    layers = [_WatchingLayer() for _ in range(count)]
    token = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
    with torch.no_grad(), tried(model):
        model(input_ids=token, past_key_values=Cache(layers=layers), use_cache=True)
    shapes = [layer.seen for layer in layers]
    for number, shape in enumerate(shapes):
        if shape is None:
            raise ValueError(
                f"layer {number} of the model keeps no keys and values of its own"
            )
    return tuple(shape for shape in shapes if shape is not None)


@contextmanager
def tried(model: PreTrainedModel) -> Iterator[None]:
    """Say of what a model raises in a call that it was called as decoders are.

    Raises ValueError with the line of the model's code.
    """
    try:
        yield
    except Exception as error:
        line = line_of_traceback(error.__traceback__)
        what, *_ = str(error).strip().splitlines() or ["no message"]
        raise ValueError(
            f"{type(model).__name__} cannot be called as the adapter calls decoders: "
            f"it raises {type(error).__name__}: {what}"
            + (f" (at {line})" if line is not None else "")
        ) from error


def make_caches(
    shapes: Sequence[LayerShape],
    rows: int,
    capacity: int,
    device: torch.device | str,
    *,
    random: bool = False,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Keys and values, [rows, heads, capacity, width] per layer, zero or random."""
    make = torch.randn if random else torch.zeros

    def tensors(sizes: Iterable[tuple[int, int]]) -> list[torch.Tensor]:
        return [
            make(rows, heads, capacity, width, dtype=shape.dtype, device=device)
            for shape, (heads, width) in zip(shapes, sizes, strict=True)
        ]

    return (
        tensors(shape.keys for shape in shapes),
        tensors(shape.values for shape in shapes),
    )


def attends_to_everything(model: PreTrainedModel) -> bool:
    """Whether every layer attends to all places before, by one mask of truth values.

    Then the mask is used as it is, without comparing places in each decode step. Other
    models, whose layers see windows or take another kind of mask, make their masks
    themselves.
    """
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    return (
        kinds <= {"full_attention"}
        and (bool(kinds) or getattr(config, "sliding_window", None) is None)
        and config._attn_implementation == "sdpa"
        and "position_ids" in inspect.signature(model.forward).parameters
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


class _WatchingLayer(StaticLayer):  # type: ignore[misc]
    """Notes what a layer would keep, and keeps nothing."""

    def __init__(self) -> None:
        super().__init__(max_cache_len=1)
        self.seen: LayerShape | None = None
        self.is_initialized = True

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen = LayerShape(
            (key_states.shape[1], key_states.shape[3]),
            (value_states.shape[1], value_states.shape[3]),
            key_states.dtype,
        )
        return key_states, value_states

    def get_seq_length(self) -> int:
        return 0


def _causal(mask: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    """Which place each position attends to, bool [batch, 1, sequence, capacity].

    Every position attends to itself, padding included: a row of the softmax with
    nothing to attend to could put NaN into the cache.
    """
    place = torch.arange(mask.shape[1], device=mask.device)
    written = slot[:, None]
    before = torch.logical_and(mask[:, None, :], place <= written)
    return torch.logical_or(before, place == written)[:, None, :, :]
