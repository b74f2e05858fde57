"""What targets of models on several ranks have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict

from transformers import PreTrainedModel

from dynaflow_dsl.models.architecture import TINY
from dynaflow_dsl.models.collectives import EXPERT, TENSOR
from dynaflow_dsl.models.decoder import decoder_spec
from dynaflow_dsl.models.family import Family, PromptOptions
from dynaflow_dsl.models.shares import Share
from dynaflow_dsl.runtime.groups import bind_stand_in
from dynaflow_dsl.trace import Scalar, TraceSpec

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
    multiple of them. Raises ValueError for entries, sizes or ranks that there are not.
    """
    share = Share(options.get("ways", 2), options.get("rank", 0))
    entries = options.get("entries", "decode")
    if entries not in _ENTRIES:
        raise ValueError(f"entries is {entries!r}; it is {', '.join(_ENTRIES)}")
    given = dict(options)
    if options.get("size", TINY) == TINY:
        given = {**_enlarged(family, share.ways), **given}
    capacity = options.get("capacity", 64)
    config = family.sized(given, capacity)
    return family.random(given, config), RankArguments(
        ways=share.ways,
        rank=share.rank,
        capacity=capacity,
        sequence=None if entries == "decode" else options.get("sequence", 16),
        decode=entries != "prefill",
        facts=family.facts(config),
        device=options.get("device", "cpu"),
    )


def rank_spec(
    model: PreTrainedModel,
    role: str,
    ways: int,
    rank: int,
    *,
    capacity: int,
    sequence: int | None,
    decode: bool,
    facts: Mapping[str, Scalar] | None,
    device: str,
) -> TraceSpec:
    """A trace target for a model that was cut for one of the ranks of `role`.

    Its facts say how many ranks there are of each role. Where no group plays `role`
    yet, a stand-in does; one rank alone cannot be compared with the whole model.
    """
    sizes: dict[str, Scalar] = {f"{name}_size": 1 for name in (TENSOR, EXPERT)}
    sizes |= {f"{role}_size": ways, f"{role}_rank": rank}
    if ways > 1:
        bind_stand_in(role, ways, rank)
    spec = decoder_spec(
        model,
        capacity=capacity,
        sequence=sequence,
        decode=decode,
        facts={**(facts or {}), **sizes},
        device=device,
    )
    return spec if ways == 1 else replace(spec, trial=None)


def _enlarged(family: Family, ways: int) -> dict[str, int]:
    """Heads and experts of a tiny model for at least `ways` ranks."""
    sizes: dict[str, int] = {}
    for whole, names in (("heads", ("heads", "kv_heads")), ("experts", ("experts",))):
        if whole in family.fields:
            times = -(-ways // family.tiny[family.fields[whole]])
            sizes |= {name: times * family.tiny[family.fields[name]] for name in names}
    return sizes
