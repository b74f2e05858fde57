"""Sizes of a family, and what a target says of those that it has not."""

from __future__ import annotations

import pytest

from dynaflow_dsl.models import (
    bert,
    clip,
    gpt2,
    llama,
    mamba,
    qwen3_moe,
    t5,
    vit,
    whisper,
)
from dynaflow_dsl.models.family import Family
from dynaflow_dsl.trace import load_target, trace


def test_sizes_go_before_those_of_a_published_shape() -> None:
    config = llama.LLAMA.configuration({"size": "8b", "layers": 2, "vocab": 64}, 16)
    assert (config.num_hidden_layers, config.vocab_size) == (2, 64)
    assert (config.hidden_size, config.num_key_value_heads) == (4096, 8)
    assert config.initializer_range == 0.02


def test_a_published_shape_is_traced_without_memory() -> None:
    spec = qwen3_moe.decode(
        size="30b-a3b", layers=1, meta=True, dtype="bfloat16", capacity=16
    )
    graph = trace(spec, "target", {}).unwrap().graphs[0]
    keys = next(item for item in graph.inputs if item.name == "keys.0")
    assert str(keys.value.type.shape[1]) == "4"
    assert keys.value.type.dtype == "bfloat16"
    assert spec.facts["experts"] == 128
    assert spec.trial is None


def test_a_size_that_the_family_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="GPT2LMHeadModel has no 'kv_heads'; it has"):
        gpt2.decode(kv_heads=2)
    with pytest.raises(ValueError, match=r"no size .9b. of .*; there are tiny, 8b"):
        llama.decode(size="9b")


@pytest.mark.parametrize("entry", ["decode", "prefill", "serve"])
def test_entries(entry: str) -> None:
    spec = getattr(llama, entry)(layers=1)
    expected = {"serve": ["decode", "prefill"]}.get(entry, [entry])
    assert sorted(spec.entries) == expected


def test_options_are_known_by_name_and_type() -> None:
    target = "dynaflow_dsl.models.llama:decode"
    (wrong,) = load_target(target, {"layer": 3}, None).diagnostics
    assert wrong.message == f"'{target}' has no argument 'layer'"
    assert wrong.helps == ("did you mean 'layers'?",)
    (wrong,) = load_target(target, {"layers": "3"}, None).diagnostics
    assert wrong.message.endswith("is an int, but got '3'")
    (wrong,) = load_target(target, {"sequence": 4}, None).diagnostics
    assert wrong.message == f"'{target}' has no argument 'sequence'"
    assert load_target(target, {"layers": 1}, None).value is not None


def test_families_are_shared_by_nothing_but_their_fields() -> None:
    assert isinstance(llama.LLAMA, Family)
    assert llama.LLAMA.fields is not gpt2.GPT2.fields


TARGETS = {
    "bert": (bert.encode, "large", 24),
    "vit": (vit.classify, "large", 24),
    "whisper": (whisper.encode, "large-v3", 32),
    "mamba": (mamba.decode, "2.8b", 64),
    "clip": (clip.both, "base", 12),
    "t5": (t5.encode, "large", 24),
}


@pytest.mark.parametrize("name", TARGETS)
def test_sizes_of_other_targets_go_before_published_ones_too(name: str) -> None:
    target, size, layers = TARGETS[name]
    whole, cut = target(size=size, meta=True), target(size=size, meta=True, layers=1)
    assert (whole.facts["layers"], cut.facts["layers"]) == (layers, 1)
    assert cut.facts["hidden"] == whole.facts["hidden"]
    count = {len(list(spec.model.parameters())) for spec in (whole, cut)}
    assert len(count) == 2
    with pytest.raises(ValueError, match=f"no size 'vast' of .*tiny, .*{size}"):
        target(size="vast")


def test_one_size_of_both_towers() -> None:
    config = clip.text(size="base", meta=True, layers=2).model.config
    assert config.text_config.num_hidden_layers == 2
    assert config.vision_config.num_hidden_layers == 2
    assert config.text_config.eos_token_id == 49407


def test_texts_fit_the_positions_of_bert() -> None:
    assert bert.encode(layers=1, sequence=200).facts["sequence"] == 200
    assert bert.encode(size="base", meta=True, sequence=512).facts["layers"] == 12
    for options in ({"sequence": 0}, {"size": "base", "sequence": 513}):
        with pytest.raises(ValueError, match=r"at most the model's positions"):
            bert.encode(meta=True, layers=1, **options)  # type: ignore[arg-type]
