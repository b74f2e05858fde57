"""Decoders over the tokens of several requests, which share a cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from dynaflow_dsl.models import llama
from dynaflow_dsl.models.decoder import random_model
from dynaflow_dsl.models.flat import FlatDecoder, FlatTrial, flat_spec
from dynaflow_dsl.trace import TraceSpec

SMALL: dict[str, Any] = {
    "layers": 2,
    "hidden": 16,
    "heads": 2,
    "kv_heads": 1,
    "intermediate": 16,
    "vocab": 32,
}


def small(**options: Any) -> TraceSpec:
    return llama.flat(**{**SMALL, "capacity": 12, "requests": 6, **options})


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_requests_that_come_in_turn_give_the_tokens_of_generate(rows: int) -> None:
    spec = small()
    adapter = spec.adapted()
    seen: list[dict[str, int]] = []

    def step(*arguments: Any, phases: dict[str, int]) -> Any:
        seen.append(phases)
        assert sum(phases.values()) == len(arguments[0])
        with torch.no_grad():
            return adapter(*arguments)

    assert isinstance(spec.trial, FlatTrial)
    made, expected = spec.trial({"step": step}, rows, seed=0)
    assert made.tolist() == expected.tolist()
    # Prompts enter while others decode, in pieces where they are long.
    assert any(all(phases.values()) for phases in seen) == (rows > 1)


def test_a_row_depends_on_its_request_alone() -> None:
    """Rows of one phase are the same whatever rows of the other stand beside them."""
    spec = small()
    adapter = spec.adapted()
    torch.manual_seed(1)
    ids, position, request, keys, values = spec.entries["step"].make(
        {"tokens": 7, "decode": 3, "prefill": 4}
    )
    with torch.no_grad():
        caches = [[one.clone() for one in listed] for listed in (keys, values)]
        whole = adapter(ids, position, request, *caches)
        for rows in (slice(0, 3), slice(3, 7)):
            caches = [[one.clone() for one in listed] for listed in (keys, values)]
            alone = adapter(ids[rows], position[rows], request[rows], *caches)
            torch.testing.assert_close(alone, whole[rows])


@pytest.mark.parametrize("sizes", [(0, 30), (3, 30), (6, 0), (5, 12), (1, 1)])
def test_examples_are_what_the_adapter_says(sizes: tuple[int, int]) -> None:
    decode, prefill = sizes
    entry = small().entries["step"]
    given = entry.make(
        {"tokens": decode + prefill, "decode": decode, "prefill": prefill}
    )
    ids, position, request, keys, _ = given
    assert len(ids) == len(position) == len(request) == decode + prefill
    assert keys[0].shape == (6, 12, 1, 8)
    places = list(zip(request.tolist(), position.tolist(), strict=True))
    assert len(set(places)) == len(places)
    assert all(0 <= place < 12 for _, place in places)
    decoding = set(request[:decode].tolist())
    assert len(decoding) == decode
    assert decoding.isdisjoint(request[decode:].tolist())


def test_more_rows_than_the_cache_has_room_for() -> None:
    entry = small().entries["step"]
    for decode, prefill in ((7, 0), (6, 1), (1, 61)):
        sizes = {"tokens": 0, "decode": decode, "prefill": prefill}
        with pytest.raises(ValueError, match="6 requests of 12 tokens"):
            entry.make(sizes)
    trial = small().trial
    assert trial is not None
    with pytest.raises(ValueError, match="7 requests do not fit into a cache of 6"):
        trial({"step": lambda *_, **__: None}, 7, 0)


def test_what_is_refused() -> None:
    config = MistralConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=32,
        sliding_window=4,
    )
    model = random_model(MistralForCausalLM, config)
    with pytest.raises(ValueError, match="attend to all of their text"):
        flat_spec(model, capacity=8, requests=4)
    with pytest.raises(ValueError, match="requests is 1; phases need two or more"):
        small(requests=1)
    with pytest.raises(ValueError, match="has positions for"):
        flat_spec(small().model, capacity=10**6, requests=4)


def test_the_target_says_what_its_rows_are() -> None:
    spec = small()
    assert spec.adapter is FlatDecoder
    assert spec.entries["step"].phases == {"tokens": ("decode", "prefill")}
    assert spec.disjoint == ("keys", "values")
    assert (spec.facts["requests"], spec.facts["capacity"]) == (6, 12)
