from __future__ import annotations

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from dynaflow_dsl.models.decoder import random_model
from dynaflow_dsl.models.generation import GreedyTrial


def trial(
    capacity: int, dtype: str = "float32", sequence: int | None = None
) -> GreedyTrial:
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    model = random_model(LlamaForCausalLM, config, dtype=dtype)
    return GreedyTrial(model, capacity, sequence)


@pytest.mark.parametrize(("capacity", "sequence"), [(1, None), (4, 4)])
def test_a_cache_without_room_is_not_tried(capacity: int, sequence: int | None) -> None:
    reason = trial(capacity, sequence=sequence).skipped
    assert reason is not None
    assert f"a cache of length {capacity} has no room" in reason


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounding_would_decide_between_tokens(dtype: str) -> None:
    assert f"rounding in {dtype} decides" in str(trial(8, dtype).skipped)


def test_one_token_is_enough() -> None:
    small = trial(2)
    assert small.skipped is None
    made, expected = small({}, 3, 0)
    assert made.tolist() == expected.tolist()
    assert expected.shape == (3, 1)
