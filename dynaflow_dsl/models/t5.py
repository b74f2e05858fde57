"""Trace targets for Hugging Face's T5 with random weights.

A text goes through `encode`; `start` makes the first token of the answer and fills the
caches of cross-attention; `decode` makes one token after the other. `translate` is
encoder and decoder in one step, without caches, for answers that are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import torch
from transformers import (
    Cache,
    EncoderDecoderCache,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.cache_utils import StaticLayer
from transformers.modeling_outputs import BaseModelOutput

from dynaflow_dsl.models.architecture import Architecture, WeightOptions
from dynaflow_dsl.models.bert import texts
from dynaflow_dsl.models.cache import SlotLayer
from dynaflow_dsl.trace import Entry, Persistent, TraceSpec

T5 = Architecture(
    T5ForConditionalGeneration,
    T5Config,
    tiny={
        "num_layers": 4,
        "d_model": 64,
        "num_heads": 4,
        "d_kv": 16,
        "d_ff": 128,
        "vocab_size": 512,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 16,
        "initializer_factor": 2.0,
        "decoder_start_token_id": 0,
    },
    published={
        "small": {"decoder_start_token_id": 0},
        "large": {
            "num_layers": 24,
            "d_model": 1024,
            "num_heads": 16,
            "d_kv": 64,
            "d_ff": 4096,
            "decoder_start_token_id": 0,
        },
    },
    # The decoder has as many layers as the encoder.
    fields={
        "layers": "num_layers",
        "hidden": "d_model",
        "heads": "num_heads",
        "head_width": "d_kv",
        "intermediate": "d_ff",
        "vocab": "vocab_size",
    },
    spread="initializer_factor",
)


class CrossLayer(StaticLayer):  # type: ignore[misc]
    """Keys and values of a text, of the caller: written at once or only read."""

    def __init__(
        self, keys: torch.Tensor, values: torch.Tensor, *, filled: bool
    ) -> None:
        super().__init__(max_cache_len=keys.shape[2])
        self.keys, self.values, self.filled = keys, values, filled
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the whole text in place."""
        self.keys.copy_(key_states)
        self.values.copy_(value_states)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """The length of the text if it is there; the library asks whether it is."""
        return int(self.keys.shape[2]) if self.filled else 0


class Encoder(torch.nn.Module):
    """The encoder of T5."""

    def __init__(self, model: T5ForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        """Hidden states [batch, sequence, hidden].

        `input_ids` is int64 and `attention_mask` bool, [batch, sequence], true for
        tokens.
        """
        output = self.model.encoder(input_ids=input_ids, attention_mask=attention_mask)
        hidden: torch.Tensor = output.last_hidden_state
        return hidden


class Decoder(torch.nn.Module):
    """The decoder of T5 on filled caches of cross-attention."""

    def __init__(self, model: T5ForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        slot: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
        cross_keys: list[torch.Tensor],
        cross_values: list[torch.Tensor],
    ) -> torch.Tensor:
        """Logits, float [batch, 1, vocab].

        `input_ids` is int64 [batch, 1], `attention_mask` that of the encoder, and
        `slot` int64 [1] the place of the token, which is its position too: answers
        start together. `keys` and `values` have one tensor
        [batch, heads, capacity, width] per layer, `cross_keys` and `cross_values` one
        [batch, heads, sequence, width].
        """
        # With filled caches only the length of the text is read of these.
        hidden = cross_keys[0][:, 0]
        return _decode(
            self.model,
            input_ids,
            attention_mask,
            hidden,
            _caches(slot, keys, values, cross_keys, cross_values, filled=True),
        )


class Starter(torch.nn.Module):
    """The first step of T5's decoder, which fills the caches of cross-attention."""

    def __init__(self, model: T5ForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        hidden: torch.Tensor,
        slot: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
        cross_keys: list[torch.Tensor],
        cross_values: list[torch.Tensor],
    ) -> torch.Tensor:
        """Logits, float [batch, 1, vocab]; arguments are those of `Decoder`.

        `hidden` are the encoder's hidden states, [batch, sequence, hidden].
        """
        return _decode(
            self.model,
            input_ids,
            attention_mask,
            hidden,
            _caches(slot, keys, values, cross_keys, cross_values, filled=False),
        )


class Translator(torch.nn.Module):
    """Encoder and decoder in one step."""

    def __init__(self, model: T5ForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        decoder_input_ids: torch.Tensor,
    ) -> torch.Tensor:
        """Logits, float [batch, answer, vocab], of int64 [batch, answer]."""
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            use_cache=False,
        )
        logits: torch.Tensor = output.logits
        return logits


class Options(WeightOptions, total=False):
    """What the targets may be given; sizes go before those of the shape.

    `capacity` is the length of the cache, and of answers in `translate`.
    """

    layers: int
    hidden: int
    heads: int
    head_width: int
    intermediate: int
    vocab: int
    sequence: int
    capacity: int


def encode(**options: Unpack[Options]) -> TraceSpec:
    """Texts of at most `sequence` tokens. Raises ValueError for an unknown size."""
    return _spec("encode", Encoder, dict(options))


def start(**options: Unpack[Options]) -> TraceSpec:
    """The first token of each answer. Raises ValueError for an unknown size."""
    return _spec("start", Starter, dict(options))


def decode(**options: Unpack[Options]) -> TraceSpec:
    """One token for every answer. Raises ValueError for an unknown size."""
    return _spec("decode", Decoder, dict(options))


def translate(**options: Unpack[Options]) -> TraceSpec:
    """Texts and their answers at once. Raises ValueError for an unknown size."""
    return _spec("translate", Translator, dict(options))


def _caches(
    slot: torch.Tensor,
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    cross_keys: list[torch.Tensor],
    cross_values: list[torch.Tensor],
    *,
    filled: bool,
) -> EncoderDecoderCache:
    own = [SlotLayer(key, value, slot) for key, value in zip(keys, values, strict=True)]
    cross = [
        CrossLayer(key, value, filled=filled)
        for key, value in zip(cross_keys, cross_values, strict=True)
    ]
    return EncoderDecoderCache(Cache(layers=own), Cache(layers=cross))


def _decode(
    model: T5ForConditionalGeneration,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    hidden: torch.Tensor,
    caches: EncoderDecoderCache,
) -> torch.Tensor:
    output = model(
        decoder_input_ids=input_ids,
        attention_mask=attention_mask,
        encoder_outputs=BaseModelOutput(last_hidden_state=hidden),
        past_key_values=caches,
        use_cache=True,
    )
    logits: torch.Tensor = output.logits
    return logits


def _spec(
    entry: str, adapter: Callable[[Any], torch.nn.Module], options: dict[str, Any]
) -> TraceSpec:
    config = T5.configuration(options)
    model = T5.random(options, config)
    sequence, capacity = options.get("sequence", 12), options.get("capacity", 40)
    arguments = _Arguments(model, sequence, capacity)
    dims: dict[str, tuple[str | None, ...]] = {
        "input_ids": ("batch", None),
        "attention_mask": ("batch", None),
    }
    persistent: dict[str, Persistent] = {}
    if entry == "translate":
        dims["decoder_input_ids"] = ("batch", None)
    if entry == "start":
        dims["hidden"] = ("batch", None, None)
    if entry in ("start", "decode"):
        for name in ("keys", "values", "cross_keys", "cross_values"):
            dims[f"{name}.*"] = ("batch", None, None, None)
            persistent[name] = Persistent(padding="scratch")
    return TraceSpec(
        model=model,
        adapter=adapter,
        root="model",
        entries={entry: Entry(lambda sizes: getattr(arguments, entry)(sizes["batch"]))},
        dims=dims,
        dimensions={"batch": (1, None)},
        persistent=persistent,
        facts={**T5.facts(config), "sequence": sequence, "capacity": capacity},
        device=options.get("device", "cpu"),
        dtype=model.dtype,
    )


class _Arguments:
    """Example arguments of each entry, for a number of rows."""

    def __init__(
        self, model: T5ForConditionalGeneration, sequence: int, capacity: int
    ) -> None:
        self.model, self.config = model, model.config
        self.sequence, self.capacity = sequence, capacity

    def encode(self, rows: int) -> tuple[Any, ...]:
        return texts(rows, self.sequence, self.config.vocab_size, self.model.device)

    def translate(self, rows: int) -> tuple[Any, ...]:
        return (*self.encode(rows), self._tokens(rows, self.capacity))

    def start(self, rows: int) -> tuple[Any, ...]:
        _, mask = self.encode(rows)
        hidden = self._random(rows, self.sequence, self.config.d_model)
        slot = torch.zeros(1, dtype=torch.int64, device=self.model.device)
        return (self._tokens(rows, 1), mask, hidden, slot, *self._caches(rows))

    def decode(self, rows: int) -> tuple[Any, ...]:
        _, mask = self.encode(rows)
        slot = torch.full((1,), self.capacity // 2, device=self.model.device)
        return (self._tokens(rows, 1), mask, slot, *self._caches(rows))

    def _tokens(self, rows: int, length: int) -> torch.Tensor:
        ids = torch.randint(0, self.config.vocab_size, (rows, length))
        return ids.to(self.model.device)

    def _caches(self, rows: int) -> tuple[list[torch.Tensor], ...]:
        config = self.config
        lengths = (self.capacity, self.capacity, self.sequence, self.sequence)
        return tuple(
            [
                self._random(rows, config.num_heads, length, config.d_kv)
                for _ in range(config.num_decoder_layers)
            ]
            for length in lengths
        )

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=self.model.dtype, device=self.model.device)
