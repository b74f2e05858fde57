"""What targets of models on several ranks have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from transformers import PreTrainedModel

from dynaflow_dsl.models.architecture import TINY
from dynaflow_dsl.models.family import Family, PromptOptions
from dynaflow_dsl.trace import Scalar

_ENTRIES = ("decode", "prefill", "serve")


class RankOptions(PromptOptions, total=False):
    """The options of a family, and which share of its model.

    `ways` is the number of ranks, `rank` one of them. `entries` is `decode`, `prefill`
    or `serve`, what the functions of a family are called.
    """

    ways: int
    rank: int
    entries: str


class RankArguments(TypedDict):
    """What a sharded spec takes beside its model."""

    ways: int
    rank: int
    capacity: int
    sequence: int | None
    decode: bool
    facts: dict[str, Scalar]
    device: str


def random_share(
    family: Family, options: Mapping[str, Any]
) -> tuple[PreTrainedModel, RankArguments]:
    """A whole random model, and what to call a sharded spec with.

    Where a tiny model has fewer heads or experts than there are ranks, it gets a
    multiple of them. Raises ValueError for entries or sizes that there are not.
    """
    ways, entries = options.get("ways", 2), options.get("entries", "decode")
    if entries not in _ENTRIES:
        raise ValueError(f"entries is {entries!r}; it is {', '.join(_ENTRIES)}")
    given = dict(options)
    if options.get("size", TINY) == TINY:
        given = {**_enlarged(family, ways), **given}
    capacity = options.get("capacity", 64)
    config = family.sized(given, capacity)
    return family.random(given, config), RankArguments(
        ways=ways,
        rank=options.get("rank", 0),
        capacity=capacity,
        sequence=None if entries == "decode" else options.get("sequence", 16),
        decode=entries != "prefill",
        facts=family.facts(config),
        device=options.get("device", "cpu"),
    )


def _enlarged(family: Family, ways: int) -> dict[str, int]:
    """Heads and experts of a tiny model for at least `ways` ranks."""
    sizes: dict[str, int] = {}
    for whole, names in (("heads", ("heads", "kv_heads")), ("experts", ("experts",))):
        if whole in family.fields:
            times = -(-ways // family.tiny[family.fields[whole]])
            sizes |= {name: times * family.tiny[family.fields[name]] for name in names}
    return sizes
