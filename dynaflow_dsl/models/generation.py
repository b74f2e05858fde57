"""Greedy generation by steps, beside the model's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from dynaflow_dsl.models.cache import (
    CachedDecoder,
    cache_shapes,
    greedy_inputs,
    make_caches,
)

NEW_TOKENS = 16
PROMPT = 8


class GreedyTrial:
    """Several steps of a decoder whose tokens must equal those of `generate()`.

    `capacity` is the length of the cache, `sequence` that of the padded prompts where
    the entry `prefill` has a fixed one. `skipped` is a reason why nothing can be learnt
    from it, or None. Where `model` is the share of a rank, `whole` makes the model
    whose tokens are to be equal.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        capacity: int,
        sequence: int | None,
        whole: Callable[[], PreTrainedModel] | None = None,
    ) -> None:
        self.model, self.capacity = model, capacity
        self.whole = whole
        self.sequence = sequence or max(1, min(PROMPT, capacity // 2))
        self.count = min(NEW_TOKENS, capacity - self.sequence)
        self.skipped = self._reason_to_skip()

    def _reason_to_skip(self) -> str | None:
        if self.count < 1:
            return (
                f"a cache of length {self.capacity} has no room for a token after a "
                f"prompt of {self.sequence}"
            )
        if self.model.dtype not in (torch.float32, torch.float64):
            dtype = str(self.model.dtype).removeprefix("torch.")
            return (
                f"generate() may take other kernels, and rounding in {dtype} decides "
                "between tokens that are almost equal"
            )
        return None

    def __call__(
        self, steps: Mapping[str, Callable[..., Any]], rows: int, seed: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens made by `steps` and by the untouched model, int64 [rows, count].

        `steps` are callables with the adapter's signature, `prefill` and `decode`; the
        adapter itself stands in for one that is missing. Every row has a prompt of its
        own, random and of another length, padded on the left.
        """
        prompts, lengths = self.prompts(rows, seed)
        with torch.no_grad():
            return self.by_steps(steps, prompts, lengths), self.own(prompts, lengths)

    def prompts(self, rows: int, seed: int) -> tuple[torch.Tensor, list[int]]:
        """Random prompts, int64 [rows, sequence], and their lengths without padding."""
        generator = torch.Generator().manual_seed(seed)
        vocabulary = self.model.config.get_text_config().vocab_size
        lengths = [1 + (seed + 3 * row) % self.sequence for row in range(rows)]
        # Padding is token 0; whatever it is, the mask hides it.
        shape = (rows, self.sequence)
        prompts = torch.randint(1, vocabulary, shape, generator=generator)
        for row, length in enumerate(lengths):
            prompts[row, : self.sequence - length] = 0
        return prompts.to(self.model.device), lengths

    def by_steps(
        self,
        steps: Mapping[str, Callable[..., Any]],
        prompts: torch.Tensor,
        lengths: list[int],
    ) -> torch.Tensor:
        """One prefill, then one decode step per token."""
        adapter = CachedDecoder(self.model)
        device = prompts.device
        position, mask, slot = (
            tensor.to(device)
            for tensor in greedy_inputs(lengths, self.sequence, self.capacity)
        )
        caches = make_caches(
            cache_shapes(self.model), len(lengths), self.capacity, device
        )
        prefill = steps.get("prefill", adapter)
        decode = steps.get("decode", adapter)
        logits = prefill(prompts, position, mask, slot, *caches)
        tokens = [logits[:, -1].argmax(-1)]
        position = position[:, -1:].clone()
        for place in range(self.sequence, self.sequence + self.count - 1):
            position, slot = position + 1, torch.tensor([place], device=device)
            mask = mask.clone()
            mask[:, place] = True
            logits = decode(tokens[-1][:, None], position, mask, slot, *caches)
            tokens.append(logits[:, -1].argmax(-1))
        return torch.stack(tokens, 1)

    def own(self, prompts: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        """What the model's own `generate()` says."""
        vocabulary = self.model.config.get_text_config().vocab_size
        place = torch.arange(self.sequence, device=prompts.device)
        padding = self.sequence - torch.tensor(lengths, device=prompts.device)
        model = self.model if self.whole is None else self.whole()
        generated: torch.Tensor = model.generate(
            prompts,
            attention_mask=(place[None, :] >= padding[:, None]).long(),
            generation_config=GenerationConfig(
                do_sample=False,
                max_new_tokens=self.count,
                pad_token_id=0,
                bos_token_id=None,
                # No token ends a text early; None would mean the choice of the model.
                eos_token_id=vocabulary,
            ),
        )
        return generated[:, self.sequence :]
