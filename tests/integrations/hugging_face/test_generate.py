"""`generate()` of a scheduled model says what it says of the model by itself."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.integrations.transformers import (
    report,
    schedule,
    scheduled,
    unschedule,
)
from tests.integrations.hugging_face.decoders import (
    CAPACITY,
    FAMILIES,
    file_of,
    generate,
    model_of,
    module_of,
    prompts,
    untouched,
)

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"do_sample": True, "top_k": 20, "temperature": 0.8},
    "several answers": {"do_sample": True, "num_return_sequences": 2},
    "beams": {"num_beams": 3},
    "sampled beams": {"num_beams": 2, "do_sample": True},
    "prompt in pieces": {"prefill_chunk_size": 4},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_padded_batch_greedy_and_sampled(family: str, tmp_path: Path) -> None:
    model, inputs = model_of(family), prompts()
    ways = ("greedy", "sampled", "beams")
    expected = {way: generate(model, inputs, **WAYS[way]) for way in ways}
    path = file_of(tmp_path, family)
    with (
        untouched(model),
        scheduled(model, path, capacity=CAPACITY, compile=False, strict=True),
    ):
        for way, tokens in expected.items():
            assert torch.equal(generate(model, inputs, **WAYS[way]), tokens), way
        told = report(model)
        assert told.own == {}
        assert told.steps == {"prefill": len(ways), "decode": 11 * len(ways)}
    assert torch.equal(generate(model, inputs), expected["greedy"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("padded", [False, True])
def test_ways_to_generate(way: str, padded: bool) -> None:
    model, inputs = model_of(), prompts(padded=padded)
    expected = generate(model, inputs, **WAYS[way])
    with scheduled(model, module_of(), compile=False, strict=True):
        assert torch.equal(generate(model, inputs, **WAYS[way]), expected)


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_sizes_of_batches_and_prompts(rows: int, length: int) -> None:
    model, inputs = model_of(), prompts(rows, length, padded=length > 2)
    expected = generate(model, inputs)
    with scheduled(model, module_of(), compile=False, strict=True):
        assert torch.equal(generate(model, inputs), expected)


def test_without_a_mask() -> None:
    model, inputs = model_of(), {"input_ids": prompts(padded=False)["input_ids"]}
    expected = generate(model, inputs)
    with scheduled(model, module_of(), compile=False, strict=True):
        assert torch.equal(generate(model, inputs), expected)


def test_scores_and_the_cache_that_is_returned() -> None:
    model, inputs = model_of(), prompts()
    options: dict[str, Any] = {
        "return_dict_in_generate": True,
        "output_logits": True,
        "output_scores": True,
    }
    own = generate(model, inputs, **options)
    with scheduled(model, module_of(), compile=False, strict=True):
        found = generate(model, inputs, **options)
        torch.testing.assert_close(found.logits, own.logits, rtol=1e-4, atol=1e-4)
        assert torch.equal(found.sequences, own.sequences)
        # The text goes on from the cache, by steps and after them by the model.
        longer = {
            "input_ids": found.sequences,
            "attention_mask": torch.cat(
                [inputs["attention_mask"], torch.ones(5, 12, dtype=torch.int64)], 1
            ),
        }
        own_cache, cache = own.past_key_values, found.past_key_values
        assert cache.get_seq_length() == own_cache.get_seq_length()
        for layer, other in zip(cache.layers, own_cache.layers, strict=True):
            length = own_cache.get_seq_length()
            keys = layer.keys[:, :, :length]
            torch.testing.assert_close(keys, other.keys, rtol=1e-4, atol=1e-4)
        more = generate(model, longer, past_key_values=cache, max_new_tokens=4)
    again = generate(model, longer, past_key_values=cache, max_new_tokens=4)
    unscheduled = generate(model, longer, past_key_values=own_cache, max_new_tokens=4)
    assert torch.equal(more, unscheduled)
    assert again.shape == unscheduled.shape


def test_a_cache_that_the_model_filled_is_taken_over() -> None:
    model, inputs = model_of(), prompts(padded=False)
    with torch.no_grad():
        cache = model(**inputs).past_key_values
    expected = generate(model, inputs, max_new_tokens=6)
    longer = {"input_ids": expected[:, :-5], "attention_mask": None}
    longer["attention_mask"] = torch.ones_like(longer["input_ids"])
    with scheduled(model, module_of(), compile=False, strict=True):
        found = generate(model, longer, past_key_values=cache, max_new_tokens=5)
        assert report(model).steps == {"decode": 5}
    assert torch.equal(found, expected)


def test_guesses_that_are_taken_back_run_between_steps() -> None:
    """Prompt lookup asks for several logits, and crops the cache."""
    model, inputs = model_of(), prompts(1, 12, padded=False)
    inputs["input_ids"][:, 6:] = inputs["input_ids"][:, :6]
    expected = generate(model, inputs, max_new_tokens=20)
    with scheduled(model, module_of(), compile=False), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = generate(model, inputs, max_new_tokens=20, prompt_lookup_num_tokens=3)
    assert torch.equal(found, expected)


def test_a_text_longer_than_the_cache_goes_on_by_the_model_itself() -> None:
    model, inputs = model_of(), prompts()
    options: dict[str, Any] = {"max_new_tokens": 45, "eos_token_id": None}
    expected = generate(model, inputs, **options)
    with scheduled(model, module_of(), compile=False):
        with pytest.warns(RuntimeWarning, match=r"needs more than the 48 places"):
            found = generate(model, inputs, **options)
        told = report(model)
    assert torch.equal(found, expected)
    # 9 tokens of the prompt, 39 more, and all others by the model.
    assert told.steps == {"prefill": 1, "decode": 39}
    assert sum(told.own.values()) == 5


@pytest.mark.parametrize("length", [1, 3, 4, 9])
def test_prompts_in_pieces_of_one_length(length: int) -> None:
    """They are padded, which the library does not see."""
    model, inputs = model_of(), prompts(3, length, padded=length > 3)
    expected = {way: generate(model, inputs, **WAYS[way]) for way in WAYS}
    options: dict[str, Any] = {"return_dict_in_generate": True, "max_new_tokens": 6}
    own = generate(model, inputs, **options)
    with scheduled(model, module_of(sequence=4), compile=False):
        for way in ("greedy", "sampled", "beams"):
            assert torch.equal(generate(model, inputs, **WAYS[way]), expected[way])
        steps = report(model).steps.get("prefill", 0)
        assert steps == 3 * (0 if length == 1 else -(-length // 4))
        assert report(model).own == {}
        found = generate(model, inputs, **options)
        cache, known = found.past_key_values, own.past_key_values
        assert cache.get_seq_length() == known.get_seq_length()
        # The model's own forward sees the cache without the padding.
        tokens = found.sequences[:, -1:]
        mask = torch.cat([inputs["attention_mask"], torch.ones(3, 6, dtype=int)], 1)
        given = {"input_ids": tokens, "attention_mask": mask}
        with torch.no_grad(), pytest.warns(RuntimeWarning, match="output_attentions"):
            after = model(**given, past_key_values=cache, output_attentions=True)
    with torch.no_grad():
        expected_after = model(**given, past_key_values=known)
    torch.testing.assert_close(
        after.logits, expected_after.logits, rtol=1e-4, atol=1e-4
    )


def test_pieces_that_do_not_go_up_come_from_the_model_itself() -> None:
    model, inputs = model_of(), prompts(3, 9)
    expected = generate(model, inputs, prefill_chunk_size=6)
    with scheduled(model, module_of(sequence=4), compile=False):
        with pytest.warns(RuntimeWarning, match="3 tokens come after others, and"):
            found = generate(model, inputs, prefill_chunk_size=6)
        assert report(model).steps == {"prefill": 2, "decode": 11}
    assert torch.equal(found, expected)


def test_one_model_after_another_way_and_back() -> None:
    model, inputs = model_of(), prompts()
    expected = generate(model, inputs)
    for _ in range(2):
        assert schedule(model, module_of(), compile=False, strict=True) is model
        assert torch.equal(generate(model, inputs), expected)
        assert unschedule(model) is model
        assert "forward" not in vars(model)


@pytest.mark.slow
def test_compiled_steps(tmp_path: Path) -> None:
    model, inputs = model_of(), prompts()
    expected = {way: generate(model, inputs, **WAYS[way]) for way in WAYS}
    with scheduled(model, module_of(), cache=tmp_path, strict=True):
        for way, tokens in expected.items():
            assert torch.equal(generate(model, inputs, **WAYS[way]), tokens), way
