"""What targets of models on several ranks have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict

import torch.distributed as dist
from transformers import PreTrainedModel

from dynaflow_dsl.models.architecture import TINY
from dynaflow_dsl.models.checkpoint import own_memory, saved_model
from dynaflow_dsl.models.collectives import EXPERT, TENSOR
from dynaflow_dsl.models.decoder import decoder_spec
from dynaflow_dsl.models.family import Family, PromptOptions
from dynaflow_dsl.models.generation import GreedyTrial
from dynaflow_dsl.models.shares import Share
from dynaflow_dsl.runtime.groups import (
    bind_group,
    bind_stand_in,
    is_destroyed,
    is_stand_in,
    players,
    release_group,
    running_ranks,
)
from dynaflow_dsl.trace import Scalar, TraceSpec

_ENTRIES = ("decode", "prefill", "serve")


class RankOptions(PromptOptions, total=False):
    """The options of a family, and which share of its model.

    `ways` is the number of ranks, `rank` one of them: this process's where a process
    group runs, else the first. `entries` is `decode`, `prefill` or `serve`, what the
    functions of a family are called.
    """

    ways: int
    rank: int
    entries: str


class _Path(TypedDict):
    path: str


class SavedOptions(_Path, total=False):
    """What targets of saved models are given, beside `ways`, `rank` and `entries`.

    `path` is the folder that `save_pretrained` wrote. `capacity` is the length of the
    cache, and `sequence` that of the prompts. The dtype is that of the weights where
    `dtype` does not say another.
    """

    ways: int
    rank: int
    entries: str
    capacity: int
    sequence: int
    dtype: str
    device: str


class RankArguments(TypedDict):
    """What a sharded spec takes beside its model."""

    ways: int
    rank: int
    capacity: int
    sequence: int | None
    decode: bool
    facts: dict[str, Scalar]
    device: str
    whole: Callable[[], PreTrainedModel]


def rank_here(role: str, ways: int, rank: int | None = None) -> int:
    """Which of the `ways` ranks of `role` this process is, unless `rank` says it.

    It is that of the group that plays the role; one that has been destroyed plays none.
    Where none does and as many ranks run as there are ways, they play it together;
    where none run, it is the first. Raises ValueError where others run: which of them
    belong together is then to be said.
    """
    if is_destroyed(role):
        release_group(role)
    playing = players().get(role)
    here, ranks = running_ranks()
    if playing is not None and not is_stand_in(role):
        if playing.size() != ways:
            raise ValueError(
                f"the target is for {ways} ranks, and {playing.size()} play the role "
                f"'{role}': give it ways = {playing.size()}"
            )
        return playing.rank() if rank is None else rank
    if ways == 1 or ranks == 1:
        return rank or 0
    if ranks != ways:
        raise ValueError(
            f"the target is for {ways} ranks, and {ranks} processes run: give it ways "
            f"= {ranks}, or call dynaflow_dsl.runtime.bind_group('{role}', group) with "
            "the group of those that share the model"
        )
    assert dist.group.WORLD is not None
    bind_group(role, dist.group.WORLD)
    return here if rank is None else rank


def random_share(
    family: Family, role: str, options: Mapping[str, Any]
) -> tuple[PreTrainedModel, RankArguments]:
    """A whole random model, and what to call a sharded spec with.

    Where a tiny model has fewer heads or experts than there are ranks, it gets a
    multiple of them. Raises ValueError for entries, sizes or ranks that there are not.
    """
    ways = options.get("ways", 2)
    share = Share(ways, rank_here(role, ways, options.get("rank")))
    given = dict(options)
    if options.get("size", TINY) == TINY:
        given = {**_enlarged(family, share.ways), **given}
    capacity = options.get("capacity", 64)
    config = family.sized(given, capacity)
    whole = partial(family.random, given, config)
    facts = family.facts(config)
    return whole(), _arguments(options, share, capacity, facts, whole)


def saved_share(
    role: str,
    options: Mapping[str, Any],
    shard: Callable[[PreTrainedModel, int, int], PreTrainedModel],
) -> tuple[PreTrainedModel, RankArguments]:
    """What `shard` keeps of a saved model for a rank, and arguments of `rank_spec`.

    The rank's share is all that is read into memory. Raises ValueError where nothing
    that can be used is saved, and where the ranks cannot share it evenly.
    """
    ways = options.get("ways", 2)
    share = Share(ways, rank_here(role, ways, options.get("rank")))
    path, dtype = options["path"], options.get("dtype")
    device = options.get("device", "cpu")

    def whole() -> PreTrainedModel:
        return own_memory(saved_model(path), dtype, device)

    model = own_memory(shard(saved_model(path), ways, share.rank), dtype, device)
    capacity = options.get("capacity", 64)
    return model, _arguments(options, share, capacity, {}, whole)


def _arguments(
    options: Mapping[str, Any],
    share: Share,
    capacity: int,
    facts: dict[str, Scalar],
    whole: Callable[[], PreTrainedModel],
) -> RankArguments:
    entries = options.get("entries", "decode")
    if entries not in _ENTRIES:
        raise ValueError(f"entries is {entries!r}; it is {', '.join(_ENTRIES)}")
    return RankArguments(
        ways=share.ways,
        rank=share.rank,
        capacity=capacity,
        sequence=None if entries == "decode" else options.get("sequence", 16),
        decode=entries != "prefill",
        facts=facts,
        device=options.get("device", "cpu"),
        whole=whole,
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
    whole: Callable[[], PreTrainedModel] | None,
) -> TraceSpec:
    """A trace target for a model that was cut for one of the ranks of `role`.

    Its facts say how many ranks there are of each role. Where no group plays `role`
    yet, a stand-in does; one rank alone cannot be compared with the whole model, which
    `whole` makes for a trial of all of them.
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
    if ways == 1:
        return spec
    trial = None
    if whole is not None and not is_stand_in(role) and model.device.type != "meta":
        trial = GreedyTrial(model, capacity, sequence, whole)
    return replace(spec, trial=trial)


def _enlarged(family: Family, ways: int) -> dict[str, int]:
    """Heads and experts of a tiny model for at least `ways` ranks."""
    sizes: dict[str, int] = {}
    for whole, names in (("heads", ("heads", "kv_heads")), ("experts", ("experts",))):
        if whole in family.fields:
            times = -(-ways // family.tiny[family.fields[whole]])
            sizes |= {name: times * family.tiny[family.fields[name]] for name in names}
    return sizes
