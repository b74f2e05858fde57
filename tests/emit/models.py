"""Tiny models, traced once, and modules made of them."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import transformers

from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.models import llama
from dynaflow_dsl.models.decoder import decoder_spec, random_model
from dynaflow_dsl.pipeline import CompiledModule, compile_schedules, understand
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import trace
from dynaflow_dsl.trace.model import TraceSpec

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
HALVES = """\
dfs 1

# While one half is in attention, the other is in the MLP.
schedule halves:
    stream side

    split batch into 2 as half

    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest

        stagger half by 1:
            attn
            mlp
"""


def llama_spec(layers: int = 3) -> TraceSpec:
    return llama.serve(
        layers=layers,
        hidden=32,
        heads=4,
        kv_heads=2,
        intermediate=48,
        vocab=64,
        capacity=16,
        sequence=6,
        initializer_range=0.3,
    )


@cache
def llama_traced() -> tuple[TraceSpec, TracedModel]:
    return _traced(llama_spec())


@cache
def deep_llama() -> TracedModel:
    """32 layers without memory."""
    spec = llama.decode(layers=32, hidden=64, capacity=32, meta=True)
    return _traced(spec)[1]


@cache
def family(name: str, layers: int = 4) -> tuple[TraceSpec, TracedModel]:
    """A model of transformers by the start of its class names."""
    options: dict[str, Any] = dict(SIZES, num_hidden_layers=layers)
    if name == "Gemma2":
        options["head_dim"] = 8
    config = getattr(transformers, f"{name}Config")(**options)
    model = random_model(getattr(transformers, f"{name}ForCausalLM"), config)
    return _traced(decoder_spec(model, capacity=16))


def _traced(spec: TraceSpec) -> tuple[TraceSpec, TracedModel]:
    return spec, trace(spec, "package.module:function", {}).unwrap()


def compiled(text: str, model: TracedModel, name: str = "s.dfs") -> CompiledModule:
    file = understand(Source(name, text)).unwrap()
    return compile_schedules(file, model).unwrap()


def written(module: CompiledModule, folder: Path) -> ModuleType:
    """The module imported from its file, beside its map."""
    path = folder / f"{module.name}.py"
    path.write_text(module.text, encoding="utf-8")
    (folder / f"{module.name}.map.json").write_text(module.map, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(module.name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
