"""Hugging Face decoders with their KV cache as plain inputs.

`decoder_spec` makes a trace target from an unedited causal language model: keys and
values come in as one tensor per layer and are written in place, positions and mask are
given per row. Rows then do not depend on each other, so a batch can be split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from dynaflow_dsl.models.cache import (
    CachedDecoder,
    LayerShape,
    cache_shapes,
    greedy_inputs,
    make_caches,
)
from dynaflow_dsl.models.generation import GreedyTrial
from dynaflow_dsl.models.random_weights import random_model
from dynaflow_dsl.trace import Entry, Persistent, TraceSpec

__all__ = ["CachedDecoder", "decoder_spec", "greedy_inputs", "random_model"]

_IMPLEMENTATIONS = ("sdpa", "eager")
ANY_LENGTH: Mapping[str, tuple[str | None, ...]] = {
    "input_ids": ("batch", "seq"),
    "position": ("batch", "seq"),
    "slot": ("seq",),
}
_KINDS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})


def decoder_spec(
    model: PreTrainedModel,
    *,
    capacity: int,
    sequence: int | Literal["any"] | None = None,
    decode: bool = True,
    facts: Mapping[str, bool | int | float | str] | None = None,
    device: str = "cpu",
) -> TraceSpec:
    """A trace target for a causal language model of Hugging Face.

    `capacity` is the length of the cache. `sequence` is the length of the padded
    prompts and adds the entry `prefill`; with "any" it is a dimension `seq` of that
    entry, from two tokens to the capacity. `decode` adds the entry `decode`, one token
    for each row. `device` says where a model on the meta device is to run.

    Layers with a window keep the whole text, like the others, and are given the model's
    own masks. Raises ValueError for models whose attention or experts the adapter does
    not know, and for caches longer than its positions.
    """
    check_decoder(model, capacity)
    if isinstance(sequence, int) and not 1 < sequence <= capacity:
        raise ValueError(
            f"sequence is {sequence}; it must be more than 1 and at most the "
            f"capacity, {capacity}"
        )
    if sequence == "any" and capacity < 3:
        raise ValueError(
            f"capacity is {capacity}; prompts of any length need three places or more"
        )
    known = decoder_facts(model, capacity)
    meta = model.device.type == "meta"
    shapes = cache_shapes(model)
    entries: dict[str, Entry] = {}
    if decode:
        entries["decode"] = Entry(
            _Arguments(model, shapes, capacity, 1), fixed={"seq": 1}
        )
    if sequence == "any":
        entries["prefill"] = Entry(
            _Arguments(model, shapes, capacity, None), dims=ANY_LENGTH
        )
    elif sequence is not None:
        entries["prefill"] = Entry(
            _Arguments(model, shapes, capacity, sequence), fixed={"seq": sequence}
        )
    dimensions: dict[str, tuple[int, int | None]] = {"batch": (1, None)}
    if sequence == "any":
        dimensions["seq"] = (2, capacity)
    return TraceSpec(
        model=model,
        adapter=CachedDecoder,
        root="model",
        entries=entries,
        dims={
            "input_ids": ("batch", None),
            "position": ("batch", None),
            "mask": ("batch", None),
            "keys.*": ("batch", None, None, None),
            "values.*": ("batch", None, None, None),
        },
        dimensions=dimensions,
        persistent={
            "keys": Persistent(padding="scratch"),
            "values": Persistent(padding="scratch"),
        },
        facts={**known, **(facts or {})},
        trial=None
        if meta
        else GreedyTrial(model, capacity, sequence if sequence != "any" else None),
        device=device if meta else model.device.type,
        dtype=model.dtype,
    )


def decoder_facts(model: PreTrainedModel, capacity: int) -> dict[str, int]:
    """What schedules may require of a decoder with a cache of this length."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    return {
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
        "vocab": config.vocab_size,
        "capacity": capacity,
    }


def check_decoder(model: PreTrainedModel, capacity: int) -> None:
    """Raise ValueError for attention or experts that no adapter knows, and for caches
    longer than the model's positions."""
    _check_attention(model)
    _check_capacity(model.config.get_text_config(), capacity)
    check_experts(model)


def check_experts(model: PreTrainedModel) -> None:
    """Raise ValueError where experts run in a loop over those that tokens chose."""
    config = model.config.get_text_config()
    if model._can_set_experts_implementation() and (
        config._experts_implementation == "eager"
    ):
        raise ValueError(
            "the model's experts run in a loop whose length depends on data; call "
            'model.set_experts_implementation("batched_mm"), whose rows can be split, '
            'or "grouped_mm"'
        )


class _Arguments:
    """Example arguments of the adapter for one sequence length, or None for any."""

    def __init__(
        self,
        model: PreTrainedModel,
        shapes: Sequence[LayerShape],
        capacity: int,
        length: int | None,
    ) -> None:
        self.vocabulary = model.config.get_text_config().vocab_size
        self.device, self.shapes = model.device, shapes
        self.capacity, self.length = capacity, length

    def __call__(self, sizes: Mapping[str, int]) -> tuple[Any, ...]:
        """Prompts of different lengths, padded on the left, and a random cache.

        In decode the last place of a prompt of `length` tokens is written.
        """
        batch, length = sizes["batch"], self.length or sizes["seq"]
        sequence = length if length > 1 else max(1, self.capacity // 2)
        lengths = torch.randint(1, sequence + 1, (batch,)).tolist()
        position, mask, slot = greedy_inputs(lengths, sequence, self.capacity)
        if length == 1:
            position, slot = position[:, -1:].clone(), slot[-1:].clone()
        ids = torch.randint(0, self.vocabulary, (batch, length))
        given = [tensor.to(self.device) for tensor in (ids, position, mask, slot)]
        caches = make_caches(
            self.shapes, batch, self.capacity, self.device, random=True
        )
        return (*given, *caches)


def _check_attention(model: PreTrainedModel) -> None:
    config = model.config.get_text_config()
    if not model._can_compile_fullgraph:
        raise ValueError(
            f"{type(model).__name__} does not work with a cache of a fixed length, as "
            "transformers says itself"
        )
    implementation = config._attn_implementation
    if implementation not in _IMPLEMENTATIONS:
        raise ValueError(
            f"the model uses {implementation} attention; load it with "
            'attn_implementation="sdpa"'
        )
    kinds = set(getattr(config, "layer_types", None) or ())
    if unknown := sorted(kinds - _KINDS):
        raise ValueError(f"the adapter does not know layers of kind {unknown[0]}")


def _check_capacity(config: PreTrainedConfig, capacity: int) -> None:
    positions = getattr(config, "max_position_embeddings", None)
    if capacity < 1:
        raise ValueError(f"capacity is {capacity}; a cache has a place or more")
    if isinstance(positions, int) and capacity > positions:
        raise ValueError(
            f"capacity is {capacity}, but the model has positions for {positions} "
            "tokens; the configuration's max_position_embeddings says so"
        )
