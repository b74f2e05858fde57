"""Mixture-of-experts decoders whose experts lie on several ranks.

Every rank has all of the model but the routed experts, runs tokens of its own, and
holds an equal share of every layer's experts. Tokens travel to their experts and back:
one dispatch and one combine per layer, as in GShard (Lepikhin et al., 2020), with as
many tokens as the router sends and not a fixed number for each expert.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import torch
from transformers import PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, _grouped_linear

from dynaflow_dsl.models.collectives import EXPERT
from dynaflow_dsl.models.deepseek_v2 import DEEPSEEK_V2
from dynaflow_dsl.models.deepseek_v3 import DEEPSEEK_V3
from dynaflow_dsl.models.exchange import combine, dispatch
from dynaflow_dsl.models.family import Family
from dynaflow_dsl.models.mixtral import MIXTRAL
from dynaflow_dsl.models.qwen3_moe import QWEN3_MOE
from dynaflow_dsl.models.ranks import (
    RankOptions,
    SavedOptions,
    random_share,
    rank_here,
    rank_spec,
    saved_share,
)
from dynaflow_dsl.models.shares import Share
from dynaflow_dsl.trace import Scalar, TraceSpec

_IMPLEMENTATION = "dynaflow_exchange"


def shard(
    model: PreTrainedModel, ways: int, rank: int, *, room: int | None = None
) -> PreTrainedModel:
    """Keep one rank's share of a model's experts, and exchange tokens around them.

    The model is changed in place and returned; all paths stay. `room` is how many
    tokens a rank can receive in one layer; None is enough for every routing when all
    ranks run equally many tokens at a time. With one rank nothing changes.

    Raises ValueError for a model without experts, and where the ranks cannot share them
    evenly.
    """
    share = Share(ways, rank)
    if ways == 1:
        return model
    found = [
        module
        for module in model.modules()
        if {"num_experts", "gate_up_proj", "down_proj"} <= _names(module)
    ]
    if not found:
        raise ValueError(f"{type(model).__name__} has no experts that can be shared")
    config = copy.copy(found[0].config)
    config._experts_implementation = _IMPLEMENTATION
    for experts in found:
        experts.num_experts = share.even(experts.num_experts, "experts")
        for name, tensor in list(experts.named_parameters(recurse=False)):
            piece = share.cut(tensor, 0, "experts")
            setattr(experts, name, torch.nn.Parameter(piece, requires_grad=False))
        experts.config, experts.ranks, experts.room = config, ways, room
    return model


def sharded_spec(
    model: PreTrainedModel,
    ways: int,
    rank: int | None = None,
    *,
    capacity: int,
    sequence: int | None = None,
    decode: bool = True,
    room: int | None = None,
    facts: Mapping[str, Scalar] | None = None,
    device: str = "cpu",
    whole: Callable[[], PreTrainedModel] | None = None,
) -> TraceSpec:
    """A trace target for one rank of an expert-parallel decoder, which `shard` changes.

    Arguments are those of `shard` and of `decoder_spec`. The facts `ep_size`, `ep_rank`
    and `tp_size` are added. `rank` is found as `rank_here` says where it is not given.
    Where no ranks run, a stand-in plays the role "ep", in which nobody else is there.
    `whole` makes the model that ranks are compared with by `dfsc verify`.
    """
    rank = rank_here(EXPERT, ways, rank)
    shard(model, ways, rank, room=room)
    return rank_spec(
        model,
        EXPERT,
        ways,
        rank,
        capacity=capacity,
        sequence=sequence,
        decode=decode,
        facts=facts,
        device=device,
        whole=whole,
    )


class ExpertOptions(RankOptions, total=False):
    """The options of targets here; `room` is that of `shard`, 0 for None."""

    room: int


@dataclass(frozen=True, slots=True)
class ExpertParallel:
    """The trace target for a family of decoders whose experts lie on several ranks."""

    family: Family

    def target(self, **options: Unpack[ExpertOptions]) -> TraceSpec:
        """One rank of a model with random weights, the whole of which is drawn first.

        Raises ValueError where the ranks cannot share its experts evenly.
        """
        model, arguments = random_share(self.family, EXPERT, options)
        return sharded_spec(model, **arguments, room=options.get("room") or None)


class SavedExpertOptions(SavedOptions, total=False):
    """The options of `pretrained`; `room` is that of `shard`, 0 for None."""

    room: int


def pretrained(**options: Unpack[SavedExpertOptions]) -> TraceSpec:
    """One rank of a saved model, which keeps no more than its share of the experts.

    Raises ValueError for a folder without a model whose experts can be shared evenly.
    """
    cut = partial(shard, room=options.get("room") or None)
    model, arguments = saved_share(EXPERT, options, cut)
    return rank_spec(model, EXPERT, **arguments)


qwen3_moe, mixtral = ExpertParallel(QWEN3_MOE).target, ExpertParallel(MIXTRAL).target
deepseek_v2 = ExpertParallel(DEEPSEEK_V2).target
deepseek_v3 = ExpertParallel(DEEPSEEK_V3).target


def exchanging_experts(
    experts: Any,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """What the library calls instead of an experts module's own forward.

    `hidden_states` is [tokens, width], `top_k_index` and `top_k_weights` are [tokens,
    choices]. Dispatch comes first and combine last, so that what is between them is
    what a schedule calls the experts.
    """
    tokens, choices = top_k_index.shape
    local, ranks = experts.num_experts, experts.ranks
    room = experts.room or ranks * tokens * min(choices, local)
    rows, ends, arrived = dispatch(
        hidden_states, top_k_index, room, local, ranks, EXPERT
    )
    inner = experts._apply_gate(_projected(experts, "gate_up_proj", rows, ends))
    made = _projected(experts, "down_proj", inner, ends)
    combined: torch.Tensor = combine(
        made, top_k_index, top_k_weights, arrived, local, ranks, EXPERT
    )
    return combined


def _projected(
    experts: Any, name: str, rows: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """Rows times the weights of their experts, which `dispatch` has put them by.

    What is made of rows past the last that arrived is not looked at.
    """
    bias = None
    if experts.has_bias:
        place = torch.arange(rows.shape[0], device=rows.device)
        number = torch.searchsorted(ends, place, right=True)
        bias = getattr(experts, f"{name}_bias")[number.clamp(max=ends.shape[0] - 1)]
    weight = getattr(experts, name)
    made: torch.Tensor = _grouped_linear(
        rows, weight, offs=ends, bias=bias, is_transposed=experts.is_transposed
    )
    return made


def _names(module: torch.nn.Module) -> set[str]:
    return {name for name, _ in module.named_parameters(recurse=False)} | (
        {"num_experts"} if hasattr(module, "num_experts") else set()
    )


ALL_EXPERTS_FUNCTIONS.register(_IMPLEMENTATION, exchanging_experts)
