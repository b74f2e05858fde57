"""Does the adapter call a model as `generate()` does?

Steps are made from the adapter, which knows decoders in general. A model of a class
that nobody tried may read its mask or its positions in another way; two short calls
tell.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from dynaflow_dsl.models.cache import (
    CachedDecoder,
    cache_shapes,
    greedy_inputs,
    make_caches,
    tried,
)
from dynaflow_dsl.runtime.distances import TOLERANCES, distance

_LENGTHS = (3, 1)
_SEQUENCE = 3


def disagreement(model: PreTrainedModel, capacity: int) -> str | None:
    """In which call the adapter and the model differ, as part of a sentence.

    A prompt padded on the left is followed by one token. None where all logits agree
    as results of a step do (`runtime.distances`), and for a cache that has no room to
    try. Raises ValueError for a model that the adapter cannot call.
    """
    if capacity <= _SEQUENCE:
        return None
    with torch.no_grad():
        by_itself = _own(model)
        with tried(model):
            by_adapter = _adapted(model, capacity)
        pairs = zip(by_itself, by_adapter, strict=True)
        allowed = TOLERANCES.get(model.dtype, 0.0)
        for name, (own, adapted) in zip(("prompt", "token"), pairs, strict=True):
            apart = distance(adapted, own)
            if not apart.relative <= allowed:
                return (
                    f"after a padded {name} its logits differ by {apart.absolute:.2g} "
                    f"from those of the adapter, {apart.relative:.2g} of the largest"
                )
    return None


def _own(model: PreTrainedModel) -> list[torch.Tensor]:
    """Logits as `generate()` asks for them, [rows, vocabulary] of each call."""
    prompt, token = _tokens(model)
    position, mask, _ = _inputs(model, _SEQUENCE)
    takes = inspect.signature(type(model).forward).parameters
    cache = DynamicCache(config=model.config.get_text_config())
    found: list[torch.Tensor] = []
    for ids in (prompt, token):
        options: dict[str, Any] = {}
        if "position_ids" in takes:
            options["position_ids"] = position
        output = model(
            input_ids=ids,
            attention_mask=mask[:, : _SEQUENCE + len(found)].long(),
            past_key_values=cache,
            use_cache=True,
            **options,
        )
        found.append(output.logits[:, -1].float())
        position, mask = position[:, -1:] + 1, _with_one_more(mask)
    return found


def _adapted(model: PreTrainedModel, capacity: int) -> list[torch.Tensor]:
    prompt, token = _tokens(model)
    position, mask, slot = _inputs(model, capacity)
    adapter = CachedDecoder(model)
    rows = len(_LENGTHS)
    caches = make_caches(cache_shapes(model), rows, capacity, model.device)
    first = adapter(prompt, position, mask, slot, *caches)
    mask[:, _SEQUENCE] = True
    slot = slot[-1:] + 1
    second = adapter(token, position[:, -1:] + 1, mask, slot, *caches)
    return [first[:, -1].float(), second[:, -1].float()]


def _tokens(model: PreTrainedModel) -> tuple[torch.Tensor, torch.Tensor]:
    """A prompt and a token for each row."""
    vocabulary = model.config.get_text_config().vocab_size
    rows = len(_LENGTHS)
    ids = (7 * torch.arange(rows * (_SEQUENCE + 1)) + 1) % vocabulary
    ids = ids.view(rows, _SEQUENCE + 1).to(model.device)
    return ids[:, :_SEQUENCE], ids[:, _SEQUENCE:]


def _inputs(model: PreTrainedModel, capacity: int) -> tuple[torch.Tensor, ...]:
    made = greedy_inputs(_LENGTHS, _SEQUENCE, capacity)
    return tuple(tensor.to(model.device) for tensor in made)


def _with_one_more(mask: torch.Tensor) -> torch.Tensor:
    return torch.cat([mask, mask.new_ones(mask.shape[0], 1)], 1)
