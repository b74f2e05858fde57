"""Hugging Face decoders with their KV cache as plain inputs.

`decoder_spec` makes a trace target from an unedited model of the Llama family: keys and
values come in as one tensor per layer and are written in place, positions and mask are
given per row. Rows then do not depend on each other, so a batch can be split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers import Cache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import StaticLayer

from dynaflow_dsl.trace import Entry, Persistent, TraceSpec

_FULL = "full_attention"
_SLIDING = "sliding_attention"


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


def decoder_spec(
    model: PreTrainedModel,
    *,
    capacity: int,
    sequence: int | None = None,
    decode: bool = True,
    facts: Mapping[str, bool | int | float | str] | None = None,
    device: str = "cpu",
) -> TraceSpec:
    """A trace target for a causal language model of Hugging Face.

    `capacity` is the length of the cache. `sequence` is the length of the padded
    prompts and adds the entry `prefill`; `decode` adds the entry `decode`, one token
    for each row. `device` says where a model on the meta device is to run. Raises
    ValueError for models whose attention the adapter does not know.
    """
    config = model.config.get_text_config()
    _check_attention(config, capacity)
    if sequence is not None and not 1 < sequence <= capacity:
        raise ValueError(
            f"sequence is {sequence}; it must be more than 1 and at most the "
            f"capacity, {capacity}"
        )
    lengths = {"decode": 1} if decode else {}
    if sequence is not None:
        lengths["prefill"] = sequence
    heads = config.num_attention_heads
    known = {
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
        "vocab": config.vocab_size,
        "capacity": capacity,
    }
    meta = model.device.type == "meta"
    return TraceSpec(
        model=model,
        adapter=CachedDecoder,
        root="model",
        entries={
            name: Entry(_Arguments(model, capacity, length))
            for name, length in lengths.items()
        },
        dims={
            "input_ids": ("batch", None),
            "position": ("batch", None),
            "mask": ("batch", None),
            "keys.*": ("batch", None, None, None),
            "values.*": ("batch", None, None, None),
        },
        dimensions={"batch": (1, None)},
        persistent={
            "keys": Persistent(padding="scratch"),
            "values": Persistent(padding="scratch"),
        },
        facts={**known, **(facts or {})},
        device=device if meta else model.device.type,
        dtype=model.dtype,
    )


def random_model(
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
) -> PreTrainedModel:
    """A model with random weights in evaluation mode, always the same for a seed.

    With `meta` it has shapes and no memory. Raises ValueError for an unknown dtype.
    """
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"dtype is {dtype!r}, which is none of torch's")
    with torch.random.fork_rng(), torch.device("meta" if meta else device):
        torch.manual_seed(seed)
        model: PreTrainedModel = model_class._from_config(
            config, dtype=kind, attn_implementation="sdpa"
        )
    return model.eval().requires_grad_(False)


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


class _Arguments:
    """Example arguments of the adapter for one sequence length."""

    def __init__(self, model: PreTrainedModel, capacity: int, length: int) -> None:
        self.config = model.config.get_text_config()
        self.device, self.dtype = model.device, model.dtype
        self.capacity, self.length = capacity, length

    def __call__(self, sizes: Mapping[str, int]) -> tuple[Any, ...]:
        """Prompts of different lengths, padded on the left, and a random cache.

        In decode the last place of a prompt of `length` tokens is written.
        """
        batch, config = sizes["batch"], self.config
        sequence = self.length if self.length > 1 else max(1, self.capacity // 2)
        lengths = torch.randint(1, sequence + 1, (batch,)).tolist()
        position, mask, slot = greedy_inputs(lengths, sequence, self.capacity)
        if self.length == 1:
            position, slot = position[:, -1:].clone(), slot[-1:].clone()
        heads = getattr(config, "num_key_value_heads", None)
        heads = heads or config.num_attention_heads
        width = getattr(config, "head_dim", None)
        width = width or config.hidden_size // config.num_attention_heads
        shape = (batch, heads, self.capacity, width)

        def cache() -> list[torch.Tensor]:
            return [
                torch.randn(shape, dtype=self.dtype, device=self.device)
                for _ in range(config.num_hidden_layers)
            ]

        ids = torch.randint(0, config.vocab_size, (batch, self.length))
        given = [tensor.to(self.device) for tensor in (ids, position, mask, slot)]
        return (*given, cache(), cache())


def _check_attention(config: PreTrainedConfig, capacity: int) -> None:
    implementation = config._attn_implementation
    if implementation != "sdpa":
        raise ValueError(
            f"the model uses {implementation} attention; load it with "
            'attn_implementation="sdpa"'
        )
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    slides = _SLIDING in kinds if kinds else window is not None
    if unknown := sorted(kinds - {_FULL, _SLIDING}):
        raise ValueError(f"the adapter does not know layers of kind {unknown[0]}")
    if slides and window is not None and capacity > window:
        raise ValueError(
            f"capacity is {capacity}, more than the model's attention window of "
            f"{window}; the adapter has no sliding windows"
        )
