"""Tiny decoders with random weights, none of which ships as a target, and schedules."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.integrations.transformers import schedule, unschedule
from dynaflow_dsl.models.random_weights import random_model

VOCABULARY = 97
END = VOCABULARY - 1
CAPACITY = 48

HALVES = """dfs 1

schedule halves:
    stream side

    split batch into 2 as half

    each layer in .{layers}.*:
        part attn on side = {attention}
        part mlp = rest

        stagger half by 1:
            attn
            mlp
"""
BEFORE = ".input_layernorm + .self_attn"

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": END,
    # Wide, so that tokens differ.
    "initializer_range": 0.3,
}
GROUPED: dict[str, Any] = {**SHAPE, "num_key_value_heads": 2}

FAMILIES: dict[str, tuple[Any, Any]] = {
    "cohere": (CohereForCausalLM, CohereConfig(**GROUPED)),
    "gemma3": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(
            **GROUPED,
            head_dim=8,
            sliding_window=6,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    "gpt_neox": (GPTNeoXForCausalLM, GPTNeoXConfig(**SHAPE)),
    "granite": (GraniteForCausalLM, GraniteConfig(**GROUPED)),
    "mixtral": (MixtralForCausalLM, MixtralConfig(**GROUPED, num_local_experts=4)),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config(**GROUPED)),
    "phi3": (Phi3ForCausalLM, Phi3Config(**GROUPED)),
}


def model_of(family: str = "granite") -> PreTrainedModel:
    """A model in evaluation mode, the same in each call."""
    model_class, config = FAMILIES[family]
    model = random_model(model_class, config)
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = END
    return model


def text_of(family: str = "granite") -> str:
    """Attention of one half of the batch beside the MLP of the other."""
    match family:
        case "olmo2":
            attention = ".self_attn + .post_attention_layernorm"
        case "gemma3":
            attention = f"{BEFORE} + .post_attention_layernorm"
        case "gpt_neox":
            attention = ".input_layernorm + .attention"
            return HALVES.format(layers="gpt_neox.layers", attention=attention)
        case _:
            attention = BEFORE
    return HALVES.format(layers="model.layers", attention=attention)


def file_of(folder: Path, family: str = "granite") -> Path:
    """The schedule of a family as a file."""
    path = folder / "halves.dfs"
    path.write_text(text_of(family), encoding="utf-8")
    return path


@cache
def module_of(
    family: str = "granite", capacity: int = CAPACITY, sequence: int | None = None
) -> ModuleType:
    """The generated module of a family, compiled once."""
    folder = Path(_folder(f"{family}_{capacity}_{sequence}"))
    model = model_of(family)
    schedule(
        model,
        file_of(folder, family),
        capacity=capacity,
        sequence=sequence,
        folder=folder,
        write=True,
        compile=False,
    )
    unschedule(model)
    return import_module_file(folder / "halves.py")


_temporary = tempfile.TemporaryDirectory()


def _folder(name: str) -> str:
    path = Path(_temporary.name) / name
    path.mkdir()
    return str(path)


def prompts(
    rows: int = 5, length: int = 9, padded: bool = True
) -> dict[str, torch.Tensor]:
    """Random prompts of different lengths, padded on the left."""
    generator = torch.Generator().manual_seed(rows * length)
    ids = torch.randint(1, END, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    if padded:
        for row in range(rows):
            mask[row, : (2 * row) % length] = 0
        ids[mask == 0] = 0
    return {"input_ids": ids, "attention_mask": mask}


def tokenizer() -> PreTrainedTokenizerFast:
    """Words `w0`, `w1` and so on, padded on the left."""
    words = {f"w{number}": number for number in range(VOCABULARY)}
    made = Tokenizer(models.WordLevel(words, unk_token="w1"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="w0", unk_token="w1", padding_side="left"
    )


def generate(
    model: PreTrainedModel, inputs: dict[str, torch.Tensor], **options: Any
) -> Any:
    """What `generate()` says for a seed; greedy by default."""
    torch.manual_seed(3)
    options = {"do_sample": False, "max_new_tokens": 12, **options}
    return model.generate(**inputs, **options)


@contextmanager
def untouched(model: PreTrainedModel) -> Iterator[None]:
    """Fails where the model is another one afterwards."""
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kind, attributes = type(model), set(vars(model))
    yield
    assert type(model) is kind
    assert set(vars(model)) == attributes
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, kept[name]), name
