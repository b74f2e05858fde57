"""One rank's graph: the same on all ranks, with collectives in their blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import GPT2Config, GPT2LMHeadModel

from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.graph.model import Graph, TracedModel
from dynaflow_dsl.models import expert_parallel
from dynaflow_dsl.models.decoder import decoder_spec
from dynaflow_dsl.models.exchange import combine, dispatch
from dynaflow_dsl.models.random_weights import random_model
from dynaflow_dsl.models.tensor_parallel import llama, shard, sharded_spec
from dynaflow_dsl.trace import trace
from tests.models.test_tensor_parallel import model_of


def traced(family: str, ways: int, rank: int, **options: bool) -> TracedModel:
    spec = sharded_spec(model_of(family), ways, rank, capacity=16, **options)
    return trace(spec, "tests:target", {}).unwrap()


def graph_of(family: str, ways: int, rank: int, **options: bool) -> Graph:
    return traced(family, ways, rank, **options).graphs[0]


def collectives_of(graph: Graph) -> list[tuple[str, str]]:
    """Operator and path of the operations that start a collective, in order."""
    return [
        (operation.operator.split(".")[1], operation.module)
        for operation in graph.operations
        if operation.operator.startswith("_c10d_functional.")
        and "wait" not in operation.operator
    ]


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "deepseek_v3"])
def test_all_ranks_trace_one_graph(family: str) -> None:
    first, last = graph_of(family, 4, 0), graph_of(family, 4, 3)
    assert graph_digest(first) == graph_digest(last)
    assert graph_digest(first) != graph_digest(graph_of(family, 2, 0))


def test_collectives_have_the_paths_of_their_blocks() -> None:
    assert collectives_of(graph_of("llama", 2, 0)) == [
        ("all_reduce", "model.embed_tokens"),
        ("all_reduce", "model.layers.0.self_attn.o_proj"),
        ("all_reduce", "model.layers.0.mlp.down_proj"),
        ("all_reduce", "model.layers.1.self_attn.o_proj"),
        ("all_reduce", "model.layers.1.mlp.down_proj"),
        ("all_gather_into_tensor", "lm_head"),
    ]


def test_one_reduction_for_all_experts() -> None:
    found = collectives_of(graph_of("qwen3_moe", 2, 0, vocabulary=False))
    assert found[:2] == [
        ("all_reduce", "model.layers.0.self_attn.o_proj"),
        ("all_reduce", "model.layers.0.mlp.experts"),
    ]
    assert len(found) == 4


def test_one_rank_is_the_model_itself() -> None:
    graph = graph_of("llama", 1, 0)
    assert not collectives_of(graph)
    whole = decoder_spec(model_of("llama"), capacity=16)
    assert graph_digest(graph) == graph_digest(
        trace(whole, "tests:target", {}).unwrap().graphs[0]
    )


def test_facts_are_those_of_the_whole_model_and_of_the_rank() -> None:
    facts = dict(traced("llama", 8, 5).facts)
    assert (facts["tp_size"], facts["tp_rank"], facts["ep_size"]) == (8, 5, 1)
    assert (facts["heads"], facts["kv_heads"], facts["vocab"]) == (8, 2, 97)


@pytest.mark.parametrize(
    ("family", "ways", "said"),
    [
        ("llama", 3, "3 ranks cannot share 8 attention heads evenly"),
        ("llama", 16, "16 ranks cannot share 8 attention heads evenly"),
        ("gpt2", 2, "GPT2LMHeadModel has no plan for tensor parallelism"),
    ],
)
def test_models_that_ranks_cannot_share(family: str, ways: int, said: str) -> None:
    if family == "gpt2":
        config = GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=9)
        model = random_model(GPT2LMHeadModel, config)
    else:
        model = model_of(family)
    with pytest.raises(ValueError, match=said):
        shard(model, ways, 0)


def test_a_rank_is_one_of_the_ways() -> None:
    with pytest.raises(ValueError, match="rank is 2 of 2 ways"):
        shard(model_of("llama"), 2, 2)
    shard(model_of("llama"), 2, 1)
    for ways, rank in ((0, 0), (2, 2)):
        with pytest.raises(ValueError, match=f"rank is {rank} of {ways} ways"):
            llama(ways=ways, rank=rank)


def test_a_published_shape_is_cut_without_memory() -> None:
    spec = llama(size="70b", layers=2, ways=8, meta=True)
    graph = trace(spec, "tests:target", {}).unwrap().graphs[0]
    assert len(collectives_of(graph)) == 6
    layer = spec.model.get_submodule("model.layers.0.mlp.down_proj")
    assert layer.weight.shape == (8192, 3584)


def test_a_tiny_model_has_heads_for_all_ranks() -> None:
    assert dict(llama(ways=8).facts)["heads"] == 8
    assert dict(llama(ways=2).facts)["heads"] == 4


def test_entries_are_those_of_the_plain_targets() -> None:
    assert list(llama(entries="serve", layers=1).entries) == ["decode", "prefill"]
    assert list(llama(entries="prefill", layers=1).entries) == ["prefill"]
    with pytest.raises(ValueError, match="entries is 'both'"):
        llama(entries="both")


def test_one_rank_needs_no_group() -> None:
    tokens, picked = torch.eye(3), torch.tensor([[1, 0], [1, 2], [0, 2]])
    rows, ends, arrived = dispatch(tokens, picked, 7, 3, 1, "nobody")
    assert ends.tolist() == [2, 4, 6]
    assert arrived.tolist() == [[2, 2, 2]]
    assert rows[:6].argmax(1).tolist() == [0, 2, 0, 1, 1, 2]
    weights = torch.full((3, 2), 0.5)
    assert_close(combine(rows, picked, weights, arrived, 3, 1, "nobody"), tokens)


def test_operators_are_declared_as_they_behave() -> None:
    tokens, picked = torch.eye(3), torch.tensor([[1, 0], [1, 2], [0, 2]])
    arguments: tuple[Any, ...] = (tokens, picked, 7, 3, 1, "nobody")
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(dispatch, arguments, test_utils=checks)
    rows, _, arrived = dispatch(*arguments)
    given = (rows, picked, torch.ones(3, 2), arrived, 3, 1, "nobody")
    torch.library.opcheck(combine, given, test_utils=checks)


def test_an_exchange_is_one_graph_of_two_operations_per_layer() -> None:
    graphs = []
    for rank in (0, 3):
        spec = expert_parallel.sharded_spec(
            model_of("deepseek_v3"), 4, rank, capacity=16
        )
        graphs.append(trace(spec, "tests:target", {}).unwrap().graphs[0])
    assert graph_digest(graphs[0]) == graph_digest(graphs[1])
    found = [
        (operation.operator, operation.module)
        for operation in graphs[0].operations
        if operation.operator.startswith("dynaflow.")
    ]
    assert found == [
        ("dynaflow.dispatch.default", "model.layers.1.mlp.experts"),
        ("dynaflow.combine.default", "model.layers.1.mlp.experts"),
    ]


def test_models_whose_experts_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="LlamaForCausalLM has no experts"):
        expert_parallel.shard(model_of("llama"), 2, 0)
    with pytest.raises(ValueError, match="3 ranks cannot share 8 experts evenly"):
        expert_parallel.shard(model_of("qwen3_moe"), 3, 0)


def test_experts_of_one_rank_are_the_model_itself() -> None:
    model = model_of("qwen3_moe")
    before = model.config._experts_implementation
    assert expert_parallel.shard(model, 1, 0).config._experts_implementation == before


def test_a_shard_leaves_other_models_of_its_configuration_alone() -> None:
    model = model_of("qwen3_moe")
    other = type(model)(model.config)
    before = other.config._experts_implementation
    expert_parallel.shard(model, 2, 0)
    assert other.config._experts_implementation == before


def test_facts_of_the_target() -> None:
    facts = dict(expert_parallel.deepseek_v3(ways=16, layers=2).facts)
    assert (facts["ep_size"], facts["tp_size"], facts["experts"]) == (16, 1, 16)
