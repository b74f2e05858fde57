"""Models of one class with random weights, in a tiny, a published or any other size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypedDict

from transformers import PreTrainedConfig, PreTrainedModel

from dynaflow_dsl.models.random_weights import random_model
from dynaflow_dsl.trace import Scalar

TINY = "tiny"
_SPREAD = 0.3
_OF_WEIGHTS = ("dtype", "device", "meta", "seed")


class WeightOptions(TypedDict, total=False):
    """What every target may be given, beside sizes.

    `size` is `tiny` or a published shape. With `meta` the model has no memory; `device`
    then says where it is to run.
    """

    size: str
    dtype: str
    device: str
    meta: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """A class of models: how its configuration calls sizes, and which there are.

    `fields` gives for each option that is a size its field in the configuration, or
    several that have one value; `text_config.vocab_size` is a field inside another.
    `tiny` and the shapes in `published` are fields with their values. A tiny model
    draws its weights wide, by the field `spread`, so that results differ between rows.
    """

    model: type[PreTrainedModel]
    config: type[PreTrainedConfig]
    tiny: Mapping[str, Any]
    published: Mapping[str, Mapping[str, Any]]
    fields: Mapping[str, str | tuple[str, ...]]
    spread: str = "initializer_range"

    def configuration(
        self, options: Mapping[str, Any], positions: int | None = None
    ) -> PreTrainedConfig:
        """The configuration of a size, with the sizes in `options` put in its place.

        A tiny model has at least 128 positions, and as many as `positions` says, if
        that is given. Raises ValueError for a size that there is not.
        """
        tiny = {self.spread: _SPREAD, **self.tiny}
        if positions is not None:
            tiny.setdefault("max_position_embeddings", max(positions, 128))
        fields = {**self.fields, "initializer_range": self.spread}
        shape = shape_of(self.model, options, {TINY: tiny, **self.published}, fields)
        return self.config(**_nested(shape))

    def random(
        self, options: Mapping[str, Any], config: PreTrainedConfig
    ) -> PreTrainedModel:
        """A model of a configuration with random weights, as the options say."""
        given = {name: options[name] for name in _OF_WEIGHTS if name in options}
        return random_model(self.model, config, **given)

    def facts(self, config: PreTrainedConfig) -> dict[str, Scalar]:
        """The sizes of a configuration, by the names of the options."""
        found = {
            name: attrgetter(_names(fields)[0])(config)
            for name, fields in self.fields.items()
        }
        return {name: value for name, value in found.items() if isinstance(value, int)}


def shape_of(
    model: type,
    options: Mapping[str, Any],
    shapes: Mapping[str, Mapping[str, Any]],
    fields: Mapping[str, str | tuple[str, ...]],
) -> dict[str, Any]:
    """The fields of the shape that options name, with the sizes in them put in place.

    Raises ValueError for a name that there is not; the model's class is named in it.
    """
    size = options.get("size", TINY)
    if size not in shapes:
        raise ValueError(
            f"there is no size {size!r} of {model.__name__}; there are "
            f"{', '.join(shapes)}"
        )
    given = {
        field: options[name]
        for name in fields
        if name in options
        for field in _names(fields[name])
    }
    return {**shapes[size], **given}


def _names(fields: str | tuple[str, ...]) -> tuple[str, ...]:
    return (fields,) if isinstance(fields, str) else fields


def _nested(shape: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`."""
    found: dict[str, Any] = {}
    for path, value in shape.items():
        outer, dot, inner = path.partition(".")
        if dot:
            found.setdefault(outer, {})[inner] = value
        else:
            found[outer] = value
    return found
