"""Trace targets for a family of decoders with random weights, in any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from transformers import PreTrainedConfig

from dynaflow_dsl.models.architecture import Architecture, WeightOptions
from dynaflow_dsl.models.decoder import decoder_spec
from dynaflow_dsl.models.flat import flat_spec
from dynaflow_dsl.trace import TraceSpec

FIELDS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
}
"""What most configurations call their sizes."""


class DecoderSizes(TypedDict, total=False):
    """What sizes decoders have; a family has not all of them.

    `window` is the number of places that a sliding layer sees; `active_experts` those
    of each token.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    intermediate: int
    vocab: int
    window: int
    experts: int
    active_experts: int
    expert_intermediate: int


class DecodeOptions(DecoderSizes, WeightOptions, total=False):
    """What the targets of a family may be given.

    Sizes go before those of the shape. `capacity` is the length of the cache;
    `initializer_range`, how wide weights are drawn.
    """

    capacity: int
    initializer_range: float


class PromptOptions(DecodeOptions, total=False):
    """The options of targets with prompts of `sequence` tokens, padded on the left."""

    sequence: int


class FlatOptions(DecodeOptions, total=False):
    """The options of targets with flat tokens: `requests` is what the cache holds."""

    requests: int


@dataclass(frozen=True, slots=True)
class Family(Architecture):
    """Decoders of one class.

    `decode` and `prefill` make targets with one entry each, `serve` one with both;
    `flat` puts tokens of both kinds into one step.
    """

    fields: Mapping[str, str] = field(default_factory=FIELDS.copy)

    def decode(self, **options: Unpack[DecodeOptions]) -> TraceSpec:
        """One token for every row of a batch.

        Raises ValueError for a size that the family has not.
        """
        return self._spec(dict(options), sequence=None, decode=True)

    def prefill(self, **options: Unpack[PromptOptions]) -> TraceSpec:
        """Prompts of `sequence` tokens, padded on the left.

        Raises ValueError for a size that the family has not.
        """
        sequence = options.pop("sequence", 16)
        return self._spec(dict(options), sequence=sequence, decode=False)

    def serve(self, **options: Unpack[PromptOptions]) -> TraceSpec:
        """Both entries, `decode` and `prefill`, of one model.

        Raises ValueError for a size that the family has not.
        """
        sequence = options.pop("sequence", 16)
        return self._spec(dict(options), sequence=sequence, decode=True)

    def flat(self, **options: Unpack[FlatOptions]) -> TraceSpec:
        """Tokens of several requests in one step, as a serving engine has them.

        Raises ValueError for a size that the family has not.
        """
        requests = options.pop("requests", 64)
        capacity = options.get("capacity", 64)
        config = self.sized(options, capacity)
        return flat_spec(
            self.random(dict(options), config),
            capacity=capacity,
            requests=requests,
            facts=self.facts(config),
            device=options.get("device", "cpu"),
        )

    def sized(self, options: Mapping[str, Any], capacity: int) -> PreTrainedConfig:
        """The configuration that options say, with places for `capacity` tokens.

        Raises ValueError for a size that the family has not.
        """
        for name in DecoderSizes.__annotations__:
            if name in options and name not in self.fields:
                raise ValueError(
                    f"{self.model.__name__} has no '{name}'; it has "
                    f"{', '.join(self.fields)}"
                )
        return self.configuration(options, capacity)

    def _spec(
        self, options: dict[str, Any], *, sequence: int | None, decode: bool
    ) -> TraceSpec:
        capacity = options.get("capacity", 64)
        config = self.sized(options, capacity)
        return decoder_spec(
            self.random(options, config),
            capacity=capacity,
            sequence=sequence,
            decode=decode,
            facts=self.facts(config),
            device=options.get("device", "cpu"),
        )
