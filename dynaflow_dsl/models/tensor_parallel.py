"""Decoders of Hugging Face cut over several ranks, each with a share of every layer.

`shard` follows the plan that a model brings along (`tp_plan`) with plain tensors and
functional collectives, so that the model can be traced in one process, without a
process group, for any number of ranks. The scheme is that of Megatron-LM (Shoeybi et
al., 2019): the first matrices of a block are cut by output features, the last by input
features, and one all-reduce follows the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, Unpack

import torch
from transformers import PreTrainedModel

from dynaflow_dsl.models.collectives import TENSOR
from dynaflow_dsl.models.deepseek_v2 import DEEPSEEK_V2
from dynaflow_dsl.models.deepseek_v3 import DEEPSEEK_V3
from dynaflow_dsl.models.family import Family
from dynaflow_dsl.models.llama import LLAMA
from dynaflow_dsl.models.mistral import MISTRAL
from dynaflow_dsl.models.mixtral import MIXTRAL
from dynaflow_dsl.models.parallel_layers import (
    GatheredLinear,
    ReducedLinear,
    SharedEmbedding,
    reduce_output,
)
from dynaflow_dsl.models.qwen2 import QWEN2
from dynaflow_dsl.models.qwen3 import QWEN3
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

# What comes after the latents of a latent attention has heads; the plans of some models
# that have one leave it whole.
_LATENT_ATTENTION = {
    "q_proj": "colwise",
    "q_b_proj": "colwise",
    "kv_b_proj": "colwise",
    "o_proj": "rowwise",
}
_VOCABULARY = frozenset({"colwise_gather_output", "embedding_rowwise"})
# They speak of gradients.
_WHOLE = frozenset({"replicated_with_grad_allreduce", "mla_kv_a_proj"})
# Whether the embedding and the head are cut is asked apart from the plan.
_QUERY = frozenset({"q_proj", "q_b_proj", "kv_b_proj", "o_proj"})
_KEY_VALUE = frozenset({"k_proj", "v_proj"})
# Changes one layer that was found to be one that can be cut.
Cut: TypeAlias = Callable[[], None]

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def shard(
    model: PreTrainedModel, ways: int, rank: int, *, vocabulary: bool = True
) -> PreTrainedModel:
    """Keep one rank's share of a model's tensors, and add the collectives it needs.

    The model is changed in place and returned; paths of modules and tensors stay, and
    so does its configuration. `vocabulary` cuts the embedding and the head, whose sizes
    need not be divisible. With one rank nothing changes.

    Raises ValueError where the ranks cannot share a layer evenly, and for models whose
    plan is missing or of another kind; the model is then as it was.
    """
    share = Share(ways, rank)
    if ways == 1:
        return model
    plan = _plan(model)
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    shared_heads = getattr(config, "num_key_value_heads", None) or heads
    share.even(heads, "attention heads")
    # All that may be refused is looked at before anything is cut.
    cuts: list[Cut] = []
    for path, module in model.named_modules():
        name = path.rpartition(".")[2]
        match plan.get(_NUMBER.sub("*", path)):
            case "colwise" if name in _KEY_VALUE:
                cuts.append(_cut_outputs(module, share, shared_heads))
            case "colwise":
                units = heads if name in _QUERY else None
                cuts.append(_cut_outputs(module, share, units))
            case "rowwise":
                units = heads if name in _QUERY else None
                cuts.append(_cut_inputs(model, path, share, units))
            case "moe_tp_experts":
                cuts.append(_cut_experts(module, path, plan, share))
            case None:
                pass
            case style if style in _WHOLE or style in _VOCABULARY:
                pass
            case style:
                raise ValueError(f"'{path}' is planned as {style}, which is not known")
    if vocabulary:
        cuts.append(_cut_vocabulary(model, share))
    for cut in cuts:
        cut()
    groups = heads // ways // max(1, shared_heads // ways)
    for module in model.modules():
        if hasattr(module, "num_key_value_groups"):
            module.num_key_value_groups = groups
    return model


def sharded_spec(
    model: PreTrainedModel,
    ways: int,
    rank: int | None = None,
    *,
    capacity: int,
    sequence: int | None = None,
    decode: bool = True,
    vocabulary: bool = True,
    facts: Mapping[str, Scalar] | None = None,
    device: str = "cpu",
    whole: Callable[[], PreTrainedModel] | None = None,
) -> TraceSpec:
    """A trace target for one rank of a tensor-parallel decoder, which `shard` changes.

    Arguments are those of `shard` and of `decoder_spec`. The facts `tp_size`, `tp_rank`
    and `ep_size` are added; the others are those of the whole model.
    `rank` is found as `rank_here` says where it is not given. Where no ranks run, a
    stand-in plays the role "tp", in which nobody else is there: steps can be compared
    with each other, not with the whole model, which `whole` makes for `dfsc verify`.
    """
    rank = rank_here(TENSOR, ways, rank)
    shard(model, ways, rank, vocabulary=vocabulary)
    return rank_spec(
        model,
        TENSOR,
        ways,
        rank,
        capacity=capacity,
        sequence=sequence,
        decode=decode,
        facts=facts,
        device=device,
        whole=whole,
    )


class TensorOptions(RankOptions, total=False):
    """The options of targets here; `vocabulary` cuts the embedding and the head."""

    vocabulary: bool


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """The trace target for a family of decoders, cut over ranks."""

    family: Family

    def target(self, **options: Unpack[TensorOptions]) -> TraceSpec:
        """One rank of a model with random weights, the whole of which is drawn first.

        Raises ValueError where the ranks cannot share it evenly.
        """
        model, arguments = random_share(self.family, TENSOR, options)
        vocabulary = options.get("vocabulary", True)
        return sharded_spec(model, **arguments, vocabulary=vocabulary)


class SavedTensorOptions(SavedOptions, total=False):
    """The options of `pretrained`; `vocabulary` is that of `shard`."""

    vocabulary: bool


def pretrained(**options: Unpack[SavedTensorOptions]) -> TraceSpec:
    """One rank of a saved model, which reads no more than its share of the weights.

    Raises ValueError for a folder without a model that can be shared out evenly.
    """
    vocabulary = options.get("vocabulary", True)
    cut = partial(shard, vocabulary=vocabulary)
    model, arguments = saved_share(TENSOR, options, cut)
    return rank_spec(model, TENSOR, **arguments)


llama, mistral = TensorParallel(LLAMA).target, TensorParallel(MISTRAL).target
qwen2, qwen3 = TensorParallel(QWEN2).target, TensorParallel(QWEN3).target
qwen3_moe, mixtral = TensorParallel(QWEN3_MOE).target, TensorParallel(MIXTRAL).target
deepseek_v2 = TensorParallel(DEEPSEEK_V2).target
deepseek_v3 = TensorParallel(DEEPSEEK_V3).target


def _plan(model: PreTrainedModel) -> Mapping[str, str]:
    """Styles by path, numbers of layers replaced by stars."""
    plan = dict(model.tp_plan or {})
    if not plan:
        raise ValueError(f"{type(model).__name__} has no plan for tensor parallelism")
    if hasattr(model.config.get_text_config(), "kv_lora_rank"):
        for path, _ in model.named_modules():
            parent, _, name = path.rpartition(".")
            if parent.endswith(".self_attn") and name in _LATENT_ATTENTION:
                plan.setdefault(_NUMBER.sub("*", path), _LATENT_ATTENTION[name])
    return plan


def _cut_outputs(module: torch.nn.Module, share: Share, units: int | None) -> Cut:
    """Keep this rank's output features of a linear layer."""
    layer = _linear(module)
    what = f"{'heads' if units else 'features'} of {layer.out_features} outputs"
    if units:
        share.even_or_repeated(units, what)
    else:
        share.even(layer.out_features, what)

    def kept(tensor: torch.Tensor) -> torch.nn.Parameter:
        if units:
            return _parameter(share.cut_or_repeat(tensor, 0, what, units))
        return _parameter(share.cut(tensor, 0, what))

    def cut() -> None:
        layer.weight = kept(layer.weight)
        if layer.bias is not None:
            layer.bias = kept(layer.bias)
        layer.out_features = layer.weight.shape[0]

    return cut


def _cut_inputs(
    model: torch.nn.Module, path: str, share: Share, units: int | None
) -> Cut:
    """Put a layer with this rank's input features in the place of the whole one."""
    layer = _linear(model.get_submodule(path))
    what = f"{'heads' if units else 'features'} of {layer.in_features} inputs"
    share.even(units or layer.in_features, what)

    def cut() -> None:
        piece = share.cut(layer.weight, 1, what, units)
        _put(model, path, ReducedLinear.of(layer, piece))

    return cut


def _cut_experts(
    module: torch.nn.Module, path: str, plan: Mapping[str, str], share: Share
) -> Cut:
    """Keep this rank's inner features of all experts, and add up what they give."""
    pieces: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = []
    for name, tensor in module.named_parameters(recurse=False):
        what = f"features of the experts' {name}"
        match plan.get(_NUMBER.sub("*", f"{path}.{name}")):
            case "packed_colwise":
                share.even(tensor.shape[-2] // 2, what)
                pieces.append((name, partial(share.cut_packed, axis=-2, what=what)))
            case "rowwise":
                share.even(tensor.shape[-1], what)
                pieces.append((name, partial(share.cut, axis=-1, what=what)))
            case style:
                raise ValueError(
                    f"'{path}.{name}' is planned as {style}, which is not known"
                )

    def cut() -> None:
        module.register_forward_hook(reduce_output)
        for name, piece in pieces:
            setattr(module, name, _parameter(piece(getattr(module, name))))

    return cut


def _cut_vocabulary(model: PreTrainedModel, share: Share) -> Cut:
    """Cut the embedding and the head, which may be one tensor."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if type(embedding) is not torch.nn.Embedding:
        raise ValueError(
            f"the embedding is a {type(embedding).__name__}, which cannot be cut; pass "
            "vocabulary=False"
        )
    layer = _linear(head)
    if layer.bias is not None:
        raise ValueError("the head has a bias and cannot be cut; pass vocabulary=False")

    def cut() -> None:
        tied = layer.weight is embedding.weight
        rows = _parameter(share.cut_padded(embedding.weight))
        columns = rows if tied else _parameter(share.cut_padded(layer.weight))
        model.set_input_embeddings(SharedEmbedding.of(embedding, rows, share.rank))
        model.set_output_embeddings(GatheredLinear.of(layer, columns, share.ways))

    return cut


def _put(model: torch.nn.Module, path: str, module: torch.nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def _linear(module: torch.nn.Module | None) -> torch.nn.Linear:
    if type(module) is not torch.nn.Linear:
        raise ValueError(
            f"the plan cuts a {type(module).__name__}, and only torch.nn.Linear can be"
        )
    return module


def _parameter(tensor: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(tensor, requires_grad=False)
