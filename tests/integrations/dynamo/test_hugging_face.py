"""Models that nobody wrote with a schedule in mind, also such without a target here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.integrations import report
from tests.integrations.dynamo.models import DECODER, write

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.slow


def random_model(family: str) -> Any:
    """A tiny causal language model of a family, the same in every run."""
    config = getattr(transformers, f"{family}Config")(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def tokens(rows: int, length: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows)
    return torch.randint(3, 64, (rows, length), generator=generator)


@pytest.mark.parametrize("family", ["Llama", "Olmo", "Phi"])
def test_a_family(family: str, tmp_path: Path) -> None:
    model = random_model(family)
    step = torch.compile(
        model,
        backend="dynaflow",
        options={
            "schedule": write(tmp_path, DECODER, "decoder.dfs"),
            "compile": False,
            "dims": {"input_ids": ("batch", None)},
        },
    )
    for rows in (4, 6, 1):
        ids = tokens(rows)
        got = step(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(got, model(input_ids=ids, use_cache=False).logits)
    first, second = report().graphs
    assert first.function == f"{family}ForCausalLM.forward"
    assert first.parts[1] == ("mlp", ("model.layers.0", "model.layers.1"))
    assert second.module is None
    module = import_module_file(tmp_path / "executors" / "decoder.py")
    loaded = module.load(model, compile=False)
    assert tuple(type(loaded).inputs) == ("input_ids",)
    ids = tokens(6)
    assert torch.equal(loaded(ids), step(input_ids=ids, use_cache=False).logits)


def test_arguments_by_position_have_their_names(tmp_path: Path) -> None:
    model = random_model("Llama")
    step = torch.compile(
        model,
        backend="dynaflow",
        options={
            "schedule": write(tmp_path, DECODER, "decoder.dfs"),
            "compile": False,
            "dims": {"input_ids": ("batch", None), "attention_mask": ("batch", None)},
        },
    )
    ids, mask = tokens(4), torch.ones(4, 8, dtype=torch.int64)
    mask[1, :3] = 0
    got = step(ids, mask, use_cache=False).logits
    torch.testing.assert_close(got, model(ids, mask, use_cache=False).logits)


def test_prompts_and_single_tokens_are_two_entries(tmp_path: Path) -> None:
    model = random_model("Llama")
    step = torch.compile(
        model,
        backend="dynaflow",
        options={
            "schedule": write(tmp_path, DECODER, "decoder.dfs"),
            "compile": False,
            "dims": {"input_ids": ("batch", "tokens")},
            "entries": {"decode": {"tokens": 1}, "prefill": {}},
        },
    )
    for length in (8, 1):
        ids = tokens(4, length)
        got = step(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(got, model(input_ids=ids, use_cache=False).logits)
    assert [(each.entry, each.module) for each in report().graphs] == [
        ("prefill", "executors/decoder_prefill.py"),
        ("decode", "executors/decoder_decode.py"),
    ]


def encoder() -> Any:
    """A tiny RoBERTa, whose mask no size ties to its rows."""
    config = transformers.RobertaConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    torch.manual_seed(0)
    return transformers.RobertaModel(config).eval()


def test_an_encoder_with_its_tokens_named_and_its_mask_not(tmp_path: Path) -> None:
    text = DECODER.replace(".model.layers.*", ".encoder.layer.*")
    text = text.replace(".input_layernorm + .self_attn", ".attention")
    model = encoder()
    step = torch.compile(
        model,
        backend="dynaflow",
        options={
            "schedule": write(tmp_path, text, "decoder.dfs"),
            "compile": False,
            "dims": {"input_ids": ("batch", "seq")},
        },
    )
    for rows, length in ((4, 8), (6, 8), (5, 7)):
        mask = torch.ones(rows, length, dtype=torch.int64)
        mask[0, 5:] = 0
        given = {"input_ids": tokens(rows, length), "attention_mask": mask}
        got = step(**given).last_hidden_state
        torch.testing.assert_close(got, model(**given).last_hidden_state)
    assert [each.module for each in report().graphs] == ["executors/decoder.py"]


def test_frequencies_that_change_with_the_length(tmp_path: Path) -> None:
    """Dynamo breaks where they are chosen: the layers are a graph of their own."""
    config = transformers.Phi3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        original_max_position_embeddings=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0] * 4,
            "long_factor": [2.0] * 4,
            "original_max_position_embeddings": 16,
            "factor": 4.0,
        },
    )
    torch.manual_seed(0)
    model = transformers.Phi3ForCausalLM(config).eval()
    step = torch.compile(
        model,
        backend="dynaflow",
        options={
            "schedule": write(tmp_path, DECODER, "decoder.dfs"),
            "compile": False,
            "dims": {"input_ids": ("batch", "seq")},
        },
    )
    for rows, length in ((4, 8), (6, 8), (4, 24), (5, 8)):
        ids = tokens(rows, length)
        got = step(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(got, model(input_ids=ids, use_cache=False).logits)
    made = [each.module for each in report().graphs if each.module is not None]
    assert made == ["executors/decoder.py"]
