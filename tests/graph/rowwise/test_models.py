"""Decoders of the usual families: every layer can run once per microbatch."""

from typing import Any

import pytest
import torch
import transformers

from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.graph.rowwise import check_rows
from dynaflow_dsl.models.decoder import decoder_spec, random_model
from dynaflow_dsl.trace import TraceSpec, trace
from tests.graph.rowwise.interpreter import difference
from tests.graph.rowwise.tracing import ROWS

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {"num_key_value_heads": 2}
WIDE = {**GROUPED, "head_dim": 8}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": GROUPED,
    "Qwen2": GROUPED,
    "Qwen3": WIDE,
    "Mistral": WIDE,
    "Phi3": GROUPED,
    "Olmo2": GROUPED,
    "Granite": GROUPED,
    "Cohere": GROUPED,
    "GPTNeoX": {},
    "Gemma2": WIDE,
}


def decoder(family: str, layers: int, **sizes: Any) -> TraceSpec:
    config = getattr(transformers, f"{family}Config")(
        **SIZES, **sizes, num_hidden_layers=layers
    )
    model = random_model(getattr(transformers, f"{family}ForCausalLM"), config)
    if family == "Qwen2":
        return decoder_spec(model, capacity=16, decode=False, sequence=6)
    return decoder_spec(model, capacity=16)


def traced(spec: TraceSpec) -> Graph:
    result = trace(spec, "tests", {})
    assert result.value is not None, result.diagnostics
    return result.value.graphs[0]


def tensors(graph: Graph, spec: TraceSpec) -> dict[str, torch.Tensor]:
    """Real weights and inputs of five rows."""
    given = spec.entries[graph.entry].arguments({"batch": ROWS})
    owned = {
        **dict(spec.model.named_parameters(remove_duplicate=False)),
        **dict(spec.model.named_buffers(remove_duplicate=False)),
    }
    found: dict[str, torch.Tensor] = {}
    for item in graph.inputs:
        if item.kind == "constant":
            dtype = getattr(torch, item.value.type.dtype)
            found[item.value.name] = torch.tensor(item.data, dtype=dtype)
        elif item.argument is None:
            found[item.value.name] = owned[item.name]
        else:
            value = given[item.argument]
            if isinstance(value, list):
                value = value[int(item.name.rpartition(".")[2])]
            found[item.value.name] = value
    return found


def layers_of(graph: Graph) -> list[str]:
    return [item.name for item in graph.operations if ".layers." in item.module]


@pytest.mark.parametrize("family", FAMILIES)
def test_decoder_layers(family: str) -> None:
    spec = decoder(family, 2 if family == "Llama" else 1, **FAMILIES[family])
    graph = traced(spec)
    region = layers_of(graph)
    assert len(region) > 30
    inputs = tensors(graph, spec)
    check = check_rows(graph, "batch", region)
    assert check.refusals == ()
    assert difference(graph, region, inputs) is None
    # Embedding and head are row-wise as well.
    everything = [item.name for item in graph.operations]
    assert check_rows(graph, "batch", everything).refusals == ()
    assert difference(graph, everything, inputs) is None


@pytest.mark.parametrize("family", ["Qwen3Moe", "Mixtral"])
def test_layers_of_experts_put_back_what_they_sort(family: str) -> None:
    sizes = {"num_experts_per_tok": 2}
    if family == "Mixtral":
        sizes["num_local_experts"] = 4
    else:
        sizes |= {"num_experts": 4, "moe_intermediate_size": 16}
    spec = decoder(family, 1, **WIDE, **sizes)
    spec.model.set_experts_implementation("grouped_mm")
    graph = traced(spec)
    region = layers_of(graph)
    assert any("sort" in item.operator for item in graph.operations)
    assert check_rows(graph, "batch", region).refusals == ()
    assert difference(graph, region, tensors(graph, spec)) is None
    # Cut off before they are put back, rows are mixed.
    put = next(item.name for item in graph.operations if "index_put_" in item.operator)
    cut = region[: region.index(put)]
    reasons = {item.reason for item in check_rows(graph, "batch", cut).refusals}
    assert "sort over the split dimension" in reasons
