"""Hugging Face decoders with their KV cache as plain inputs.

`decoder_spec` makes a trace target from an unedited model of the Llama family: keys and
values come in as one tensor per layer and are written in place, positions and mask are
given per row. Rows then do not depend on each other, so a batch can be split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from dynaflow_dsl.models.cache import (
    CachedDecoder,
    cache_shape,
    greedy_inputs,
)
from dynaflow_dsl.models.generation import GreedyTrial
from dynaflow_dsl.trace import Entry, Persistent, TraceSpec

__all__ = ["CachedDecoder", "decoder_spec", "greedy_inputs", "random_model"]

_FULL = "full_attention"
_SLIDING = "sliding_attention"


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
            name: Entry(_Arguments(model, capacity, length), fixed={"seq": length})
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
        trial=None if meta else GreedyTrial(model, capacity, sequence),
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


class _Arguments:
    """Example arguments of the adapter for one sequence length."""

    def __init__(self, model: PreTrainedModel, capacity: int, length: int) -> None:
        self.model, self.config = model, model.config.get_text_config()
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
        shape = cache_shape(self.model, batch, self.capacity)

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
