"""Greedy steps of a decoder on prompts padded on the left, for comparing models."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from dynaflow_dsl.models.cache import CachedDecoder, cache_shapes, make_caches
from dynaflow_dsl.models.decoder import greedy_inputs


def decode(
    model: PreTrainedModel,
    prompts: torch.Tensor,
    lengths: list[int],
    steps: int,
    capacity: int = 16,
) -> torch.Tensor:
    """Logits [rows, steps, vocab] of a prefill and of `steps - 1` decode steps."""
    adapter = CachedDecoder(model)
    sequence = prompts.shape[1]
    keys, values = make_caches(cache_shapes(model), len(lengths), capacity, "cpu")
    position, mask, slot = greedy_inputs(lengths, sequence, capacity)
    logits = [adapter(prompts, position, mask, slot, keys, values)]
    position = position[:, -1:]
    for place in range(sequence, sequence + steps - 1):
        position, slot = position + 1, torch.tensor([place])
        mask = mask.clone()
        mask[:, place] = True
        tokens = logits[-1][:, -1].argmax(-1)[:, None]
        logits.append(adapter(tokens, position, mask, slot, keys, values))
    return torch.cat(logits, 1)
