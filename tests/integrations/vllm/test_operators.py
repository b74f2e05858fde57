"""What is declared of vLLM's operators, on graphs as it hands them over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dynaflow_dsl.integrations.vllm.operators import OPERATIONS, know_operators
from dynaflow_dsl.operations import plugins
from dynaflow_dsl.operations.effects import hidden_memory
from dynaflow_dsl.operations.rows import rows_of
from tests.bind.graphs import SPLIT, bound, fault, graph

LAYER = """
    input h0
    weight n0:fixed
    d0:fixed = dynaflow_vllm.unified_kv_cache_update.default(h0, h0, n0) @ layers.0.x
    r0 = relu(h0) @ layers.0.x
    a0 = add.Tensor(r0, r0) @ layers.0.x
    dynaflow_vllm.unified_attention_with_output.default(h0, h0, h0, a0, n0) @ layers.0.x
    h1 = relu(a0) @ layers.0.y
    return h1
"""


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    before = dict(plugins._provided)
    know_operators()
    hidden_memory.cache_clear()
    yield
    plugins._provided.clear()
    plugins._provided.update(before)
    plugins._values.cache_clear()
    hidden_memory.cache_clear()


def test_attention_may_be_cut_by_tokens() -> None:
    binding = bound("a = .x\nb = .y", graph(LAYER), split=SPLIT)
    attention = next(part for part in binding.everything if part.name == "a")
    assert ("memory 'kv cache'", True) in attention.instances[0].touched


def test_what_is_not_declared_may_not() -> None:
    text = LAYER.replace("unified_attention_with_output", "gdn_attention_core")
    refused = fault("a = .x\nb = .y", graph(text), split=SPLIT)
    assert refused.code == "DFS601"
    assert "no row rule for dynaflow_vllm.gdn_attention_core.default" in refused.message


def test_both_spellings_are_known() -> None:
    for namespace in ("vllm", "dynaflow_vllm"):
        operator = f"{namespace}.unified_attention_with_output.default"
        assert rows_of(operator) is not None
        assert hidden_memory(operator) == {"memory 'kv cache'": True}


def test_nobody_else_is_told() -> None:
    plugins._provided.pop("vllm")
    plugins._values.cache_clear()
    assert rows_of("_C.onednn_mm.default") is None
    assert not set(plugins._values()) & set(OPERATIONS)
