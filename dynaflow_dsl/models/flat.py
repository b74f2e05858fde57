"""Decoders over the tokens of several requests in one flat dimension.

A step of a serving engine holds one token of every running request and the next tokens
of new prompts. Here they are rows of one dimension, `tokens`: first those that decode,
then those of prompts. Each row says which request it belongs to and where in its text
it stands, and finds the request's keys and values in a cache that all share. It
attends to its own request alone, so the two phases never meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import StaticLayer

from dynaflow_dsl.models.cache import (
    LayerShape,
    attends_to_everything,
    cache_shapes,
)
from dynaflow_dsl.models.decoder import check_decoder, decoder_facts
from dynaflow_dsl.models.generation import GreedyTrial
from dynaflow_dsl.trace import Entry, Persistent, TraceSpec

PHASES = ("decode", "prefill")

# Prompts longer than this enter in several steps of the trial, as in an engine.
CHUNK = 3


class RequestLayer(StaticLayer):  # type: ignore[misc]
    """One layer's keys and values of all requests, read and written by row.

    It is what paged attention does, with one page for each request and without a
    kernel of its own: rows of one request each get a copy of its page.
    """

    def __init__(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        request: torch.Tensor,
        position: torch.Tensor,
    ) -> None:
        super().__init__(max_cache_len=keys.shape[1])
        self.keys, self.values = keys, values
        self.request, self.position = request, position
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the rows' own places; return what each row's request has."""
        place = (self.request, self.position)
        self.keys.index_put_(place, key_states[:, :, 0])
        self.values.index_put_(place, value_states[:, :, 0])
        return (
            self.keys[self.request].transpose(1, 2),
            self.values[self.request].transpose(1, 2),
        )

    def get_seq_length(self) -> int:
        """Rows have positions of their own, so this says nothing."""
        return 0


class FlatDecoder(torch.nn.Module):
    """A causal language model over flat tokens, with its cache as inputs."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        position: torch.Tensor,
        request: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
    ) -> torch.Tensor:
        """Logits after every token, float [tokens, vocab].

        `input_ids`, `position` and `request` are int64 [tokens]: the token, its index
        in the text of its request, and the request's row in the cache. No two rows of a
        step have the same request and position. `keys` and `values` have one tensor
        [requests, capacity, heads, width] per layer. Tokens that stand before a row in
        its request are in the cache, or are rows of the same step.
        """
        layers = [
            RequestLayer(key, value, request, position)
            for key, value in zip(keys, values, strict=True)
        ]
        place = torch.arange(keys[0].shape[1], device=position.device)
        output = self.model(
            input_ids=input_ids[:, None],
            position_ids=position[:, None],
            attention_mask=(place <= position[:, None])[:, None, None, :],
            past_key_values=Cache(layers=layers),
            use_cache=True,
        )
        logits: torch.Tensor = output.logits
        return logits[:, 0]


def flat_spec(
    model: PreTrainedModel,
    *,
    capacity: int,
    requests: int,
    facts: Mapping[str, bool | int | float | str] | None = None,
    device: str = "cpu",
) -> TraceSpec:
    """A trace target for a causal language model of Hugging Face over flat tokens.

    Its entry `step` has the dimension `tokens` with the phases `decode` and `prefill`.
    `capacity` is the number of tokens that the cache holds of a request, `requests` how
    many of them it holds. `device` says where a model on the meta device is to run.
    Raises ValueError for models whose layers see windows, and for those that
    `decoder_spec` refuses.
    """
    if not attends_to_everything(model):
        raise ValueError(
            "flat tokens need layers that attend to all of their text, with "
            'attn_implementation="sdpa"'
        )
    if requests < 2:
        raise ValueError(f"requests is {requests}; phases need two or more")
    check_decoder(model, capacity)
    meta = model.device.type == "meta"
    shapes = cache_shapes(model)
    known = {**decoder_facts(model, capacity), "requests": requests}
    return TraceSpec(
        model=model,
        adapter=FlatDecoder,
        root="model",
        entries={
            "step": Entry(
                _Arguments(model, shapes, capacity, requests),
                phases={"tokens": PHASES},
            )
        },
        dims={
            "input_ids": ("tokens",),
            "position": ("tokens",),
            "request": ("tokens",),
        },
        dimensions={"tokens": (1, None)},
        persistent={"keys": Persistent(), "values": Persistent()},
        disjoint=("keys", "values"),
        facts={**known, **(facts or {})},
        trial=None if meta else FlatTrial(model, capacity, requests),
        device=device if meta else model.device.type,
        dtype=model.dtype,
    )


class _Arguments:
    """Example arguments of the adapter for a number of rows of each phase."""

    def __init__(
        self,
        model: PreTrainedModel,
        shapes: Sequence[LayerShape],
        capacity: int,
        requests: int,
    ) -> None:
        self.vocabulary = model.config.get_text_config().vocab_size
        self.device, self.shapes = model.device, shapes
        self.capacity, self.requests = capacity, requests

    def __call__(self, sizes: Mapping[str, int]) -> tuple[Any, ...]:
        """Requests in random rows of a random cache; prompts of several lengths.

        Raises ValueError for more rows than the cache has room for.
        """
        decode, prefill = sizes["decode"], sizes["prefill"]
        free = torch.randperm(self.requests).tolist()
        if decode > self.requests or prefill > (self.requests - decode) * self.capacity:
            raise ValueError(
                f"{decode} rows that decode and {prefill} of prompts need more than "
                f"the {self.requests} requests of {self.capacity} tokens that the "
                "cache holds"
            )
        request = [free.pop() for _ in range(decode)]
        position = torch.randint(0, self.capacity, (decode,)).tolist()
        while prefill:
            # As long as the rest needs, else of any length.
            least = max(1, prefill - (len(free) - 1) * self.capacity)
            most = min(prefill, self.capacity)
            length = int(torch.randint(least, most + 1, ()))
            first = int(torch.randint(0, self.capacity - length + 1, ()))
            request += [free.pop()] * length
            position += range(first, first + length)
            prefill -= length
        given = [
            torch.randint(0, self.vocabulary, (len(request),)),
            torch.tensor(position),
            torch.tensor(request),
        ]
        caches = flat_caches(
            self.shapes, self.requests, self.capacity, self.device, random=True
        )
        return (*(tensor.to(self.device) for tensor in given), *caches)


def flat_caches(
    shapes: Sequence[LayerShape],
    requests: int,
    capacity: int,
    device: torch.device | str,
    *,
    random: bool = False,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Keys and values, [requests, capacity, heads, width] per layer."""
    make = torch.randn if random else torch.zeros
    keys, values = (
        [
            make(requests, capacity, *size, dtype=shape.dtype, device=device)
            for shape, size in zip(shapes, sizes, strict=True)
        ]
        for sizes in ([s.keys for s in shapes], [s.values for s in shapes])
    )
    return keys, values


class FlatTrial(GreedyTrial):
    """Requests that come one after the other, beside the model's own `generate()`.

    One more prompt enters in every step, at most CHUNK tokens at a time, while those
    that are through decode.
    """

    def __init__(self, model: PreTrainedModel, capacity: int, requests: int) -> None:
        super().__init__(model, capacity, None)
        self.requests = requests

    def by_steps(
        self,
        steps: Mapping[str, Callable[..., Any]],
        prompts: torch.Tensor,
        lengths: list[int],
    ) -> torch.Tensor:
        """All requests in one cache, from the first prompt to the last token."""
        step, device = steps["step"], prompts.device
        count = len(lengths)
        if count > self.requests:
            raise ValueError(
                f"{count} requests do not fit into a cache of {self.requests}"
            )
        caches = flat_caches(
            cache_shapes(self.model), self.requests, self.capacity, device
        )
        texts = [
            prompts[row, self.sequence - length :].tolist()
            for row, length in enumerate(lengths)
        ]
        made: list[list[int]] = [[] for _ in range(count)]
        done = [0] * count
        started = 0
        while any(len(tokens) < self.count for tokens in made):
            started = min(started + 1, count)
            rows: list[tuple[int, int, int]] = []
            decoding = [k for k in range(started) if 0 < len(made[k]) < self.count]
            rows += [(made[k][-1], done[k], k) for k in decoding]
            entering = [k for k in range(started) if done[k] < lengths[k]]
            for k in entering:
                chunk = range(done[k], min(done[k] + CHUNK, lengths[k]))
                rows += [(texts[k][place], place, k) for place in chunk]
            tokens, positions, requests = (
                torch.tensor(column, device=device)
                for column in zip(*rows, strict=True)
            )
            phases = {"decode": len(decoding), "prefill": len(rows) - len(decoding)}
            logits = step(tokens, positions, requests, *caches, phases=phases)
            for (_, place, k), chosen in zip(
                rows, logits.argmax(-1).tolist(), strict=True
            ):
                done[k] = place + 1
                if done[k] >= lengths[k]:
                    made[k].append(chosen)
        return torch.tensor(made, device=device)
