"""Prompts and decode steps of a scheduled decoder, and what the model itself says."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from dynaflow_dsl.models.cache import cache_shapes, greedy_inputs, make_caches


@torch.no_grad()
def by_steps(
    executor: Any,
    model: PreTrainedModel,
    prompts: list[torch.Tensor],
    steps: int,
    capacity: int,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits [rows, steps + 1, vocab] of greedy steps, and each row's whole text.

    One prefill with the prompts padded on the left, then one step for each token, all
    rows at once.
    """
    lengths = [len(prompt) for prompt in prompts]
    sequence = max(lengths)
    ids = torch.zeros(len(prompts), sequence, dtype=torch.int64)
    for row, prompt in zip(ids, prompts, strict=True):
        row[sequence - len(prompt) :] = prompt
    position, mask, slot = greedy_inputs(lengths, sequence, capacity)
    caches = make_caches(cache_shapes(model), len(prompts), capacity, "cpu")
    logits = [executor.prefill(ids, position, mask, slot, *caches)[:, -1]]
    position, tokens = position[:, -1:].clone(), []
    for place in range(sequence, sequence + steps):
        tokens.append(logits[-1].argmax(-1))
        position, slot = position + 1, torch.tensor([place])
        mask = mask.clone()
        mask[:, place] = True
        step = executor.decode(tokens[-1][:, None], position, mask, slot, *caches)
        logits.append(step[:, -1])
    made = torch.stack(tokens, 1)
    texts = [torch.cat(pair) for pair in zip(prompts, made, strict=True)]
    return torch.stack(logits, 1), texts


@torch.no_grad()
def alone(
    model: PreTrainedModel, texts: list[torch.Tensor], steps: int
) -> torch.Tensor:
    """What the untouched model says of each text: no padding, no cache, row by row."""
    logits = [
        model(input_ids=text[None], use_cache=False).logits[0, -steps - 1 :]
        for text in texts
    ]
    return torch.stack(logits)


def random_prompts(lengths: tuple[int, ...], vocabulary: int) -> list[torch.Tensor]:
    """Random tokens; token 0 is kept for padding."""
    generator = torch.Generator().manual_seed(5)
    return [
        torch.randint(1, vocabulary, (length,), generator=generator)
        for length in lengths
    ]
