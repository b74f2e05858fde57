"""Bindings of traced models of the transformers library."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from dynaflow_dsl.bind import Binding, Carried, Outer, Produced
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.models.decoder import decoder_spec, random_model
from dynaflow_dsl.trace import trace
from tests.bind.graphs import SPLIT, attempt, bound, fault, part
from tests.bind.machine import run_binding, run_graph

SHAPE = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}
GROUPED = {**SHAPE, "num_key_value_heads": 1}
FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig(**GROUPED)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**GROUPED, head_dim=8)),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config(**GROUPED, head_dim=8)),
    "gpt_neox": (GPTNeoXForCausalLM, GPTNeoXConfig(**SHAPE)),
    # Every second layer has no rotary embedding.
    "smollm3": (
        SmolLM3ForCausalLM,
        SmolLM3Config(**GROUPED, no_rope_layer_interval=2),
    ),
}
EACH = ".model.layers.*"
PARTS = "attn = .input_layernorm + .self_attn\nmlp = rest"
THREE = """
    qkv = .input_layernorm + .self_attn.q_proj + .self_attn.k_proj + .self_attn.v_proj
    attn = .self_attn - qkv
    mlp = rest
"""

Traced = Callable[[str], Graph]


@pytest.fixture(scope="session")
def traced() -> Traced:
    """The decode entry of a family, traced once."""
    graphs: dict[str, Graph] = {}

    def get(family: str) -> Graph:
        if family not in graphs:
            spec = decoder_spec(random_model(*FAMILIES[family]), capacity=8)
            graphs[family] = trace(spec, family, {}).unwrap().graphs[0]
        return graphs[family]

    return get


def every(binding: Binding) -> set[str]:
    """Names of operations of all owners."""
    owners = binding.everything
    return {name for p in owners for i in p.instances for name in i.operations}


@pytest.mark.parametrize("split", ["", SPLIT])
@pytest.mark.parametrize("parts", [PARTS, THREE])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "smollm3"])
def test_parts_do_what_the_model_does(
    family: str, parts: str, split: str, traced: Traced
) -> None:
    graph = traced(family)
    binding = bound(parts, graph, each=EACH, split=split)
    assert every(binding) == {operation.name for operation in graph.operations}
    assert run_binding(binding) == run_graph(graph)
    assert [i.path for i in binding.sections[0].iterations] == [
        f"model.layers.{i}" for i in range(3)
    ]


def test_llama(traced: Traced) -> None:
    binding = bound(PARTS, traced("llama"), each=EACH, split=SPLIT)
    attn, mlp = binding.parts
    assert [len(p.bodies) for p in binding.parts] == [1, 1]
    assert isinstance(attn.roles[0], Carried)
    assert attn.roles[0].part == "mlp"
    assert attn.roles[-2:] == (
        Outer(("keys.0", "keys.1", "keys.2")),
        Outer(("values.0", "values.1", "values.2")),
    )
    assert mlp.roles == (attn.roles[0], Produced("attn", 0))
    # Both residual additions are the layer's own.
    assert len(mlp.attached) == 6
    assert attn.attached == frozenset()
    touched = dict(attn.instances[1].touched)
    assert touched["keys.1"] is True
    assert touched["values.1"] is True
    assert touched["mask"] is False
    assert "keys.0" not in touched
    assert mlp.instances[1].touched == ()
    cut = {"keys.0", "keys.1", "keys.2", "values.0", "values.1", "values.2"}
    assert cut <= binding.axes.keys()
    assert set(binding.axes.values()) == {0}


def test_layers_without_rotary_embedding_share_the_interface(traced: Traced) -> None:
    attn = part(bound(PARTS, traced("smollm3"), each=EACH), "attn")
    assert [i.body for i in attn.instances] == [0, 1, 0]
    ignored = [
        r for r in attn.roles if isinstance(r, Outer) and len(set(r.values)) == 1
    ]
    assert len(ignored) >= 2


def test_a_forgotten_module(traced: Traced) -> None:
    parts = "attn = .input_layernorm + .self_attn\nmlp = .mlp"
    found = fault(parts, traced("llama"), each=EACH)
    assert found.code == "DFS203"
    assert found.message == (
        "no part takes .post_attention_layernorm, which runs between parts"
    )
    assert all("modeling_llama.py" in note for note in found.notes[:1])


def test_attention_beside_the_mlp(traced: Traced) -> None:
    parts = "attn = .input_layernorm + .attention\nmlp = rest"
    binding = bound(parts, traced("gpt_neox"), each=".gpt_neox.layers.*")
    assert run_binding(binding) == run_graph(traced("gpt_neox"))
    attn, mlp = binding.parts
    # Both read what the layer before made.
    assert attn.roles[0] == mlp.roles[0]


def test_a_norm_that_comes_after_the_part_it_is_in(traced: Traced) -> None:
    parts = (
        "mlp = .input_layernorm + .mlp\nattn = .self_attn + .post_attention_layernorm"
    )
    result = attempt(parts, traced("llama"), each=EACH)
    (found,) = result.diagnostics
    assert found.code == "DFS204"
    assert found.primary is not None
    assert found.primary.span.text == ".input_layernorm + .mlp"
    assert found.notes[0].startswith("leaves at ")
    assert "input_layernorm" in found.notes[0]
    assert found.notes[1].startswith("comes back at linear in model.layers.0.mlp")
