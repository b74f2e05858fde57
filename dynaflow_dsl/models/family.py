"""Trace targets for a family of decoders with random weights, in any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from transformers import PreTrainedConfig, PreTrainedModel

from dynaflow_dsl.models.decoder import decoder_spec
from dynaflow_dsl.models.random_weights import random_model
from dynaflow_dsl.trace import Scalar, TraceSpec

TINY = "tiny"
_SPREAD = 0.3
_SIZES = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_width",
    "intermediate",
    "vocab",
    "window",
    "experts",
    "active_experts",
    "expert_intermediate",
)

FIELDS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
}
"""What most configurations call their sizes."""


class DecodeOptions(TypedDict, total=False):
    """What the targets of a family may be given; a family has not all of the sizes.

    `size` is `tiny` or a published shape. Sizes go before those of the shape: `layers`,
    `hidden`, `heads`, `kv_heads`, `head_width`, `intermediate`, `vocab`; `window`, the
    places that a sliding layer sees; `experts`, `active_experts` for each token and
    `expert_intermediate`. `capacity` is the length of the cache. With `meta` the model
    has no memory. A tiny model draws its weights wide (`initializer_range`), so that
    logits differ between tokens.
    """

    size: str
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
    capacity: int
    dtype: str
    device: str
    meta: bool
    seed: int
    initializer_range: float


class PromptOptions(DecodeOptions, total=False):
    """The options of targets with prompts of `sequence` tokens, padded on the left."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Family:
    """The models of one class: how its configuration calls sizes, and which there are.

    `fields` gives the field of the configuration for each size in `DecodeOptions`;
    `tiny` and the shapes in `published` are fields with their values. `decode` and
    `prefill` make targets with one entry each, `serve` one with both.
    """

    model: type[PreTrainedModel]
    config: type[PreTrainedConfig]
    tiny: Mapping[str, Any]
    published: Mapping[str, Mapping[str, Any]]
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

    def configuration(
        self, options: Mapping[str, Any], capacity: int
    ) -> PreTrainedConfig:
        """The configuration of a size, with the sizes in `options` put in its place."""
        size = options.get("size", TINY)
        if size != TINY and size not in self.published:
            raise ValueError(
                f"there is no size {size!r} of {self.model.__name__}; there are "
                f"{', '.join([TINY, *self.published])}"
            )
        given = {name: options[name] for name in _SIZES if name in options}
        for name in given:
            if name not in self.fields:
                raise ValueError(
                    f"{self.model.__name__} has no '{name}'; it has "
                    f"{', '.join(self.fields)}"
                )
        shape = dict(self.published[size] if size != TINY else self.tiny)
        if size == TINY:
            shape.setdefault("max_position_embeddings", max(capacity, 128))
        spread = options.get("initializer_range", _SPREAD if size == TINY else None)
        if spread is not None:
            shape["initializer_range"] = spread
        shape.update({self.fields[name]: value for name, value in given.items()})
        return self.config(**shape)

    def random(
        self, options: Mapping[str, Any], config: PreTrainedConfig
    ) -> PreTrainedModel:
        """A model of a configuration with random weights, as the options say."""
        return random_model(
            self.model,
            config,
            dtype=options.get("dtype", "float32"),
            device=options.get("device", "cpu"),
            meta=options.get("meta", False),
            seed=options.get("seed", 0),
        )

    def facts(self, config: PreTrainedConfig) -> dict[str, Scalar]:
        """The sizes of a configuration, by the names of the options."""
        found = {name: getattr(config, item) for name, item in self.fields.items()}
        return {name: value for name, value in found.items() if isinstance(value, int)}

    def _spec(
        self, options: dict[str, Any], *, sequence: int | None, decode: bool
    ) -> TraceSpec:
        capacity = options.get("capacity", 64)
        config = self.configuration(options, capacity)
        return decoder_spec(
            self.random(options, config),
            capacity=capacity,
            sequence=sequence,
            decode=decode,
            facts=self.facts(config),
            device=options.get("device", "cpu"),
        )
