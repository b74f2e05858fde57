"""A trace target for any causal language model that was saved, by its path or name."""

from __future__ import annotations

from typing import TypedDict, Unpack

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from dynaflow_dsl.models.decoder import decoder_spec
from dynaflow_dsl.trace import TraceSpec

USUAL_CAPACITY = 1024


class _Path(TypedDict):
    path: str


class PretrainedOptions(_Path, total=False):
    """What the target is given.

    `path` is a folder, or the name of a model on the Hugging Face hub. `capacity` is
    the length of the cache and `sequence` that of prompts, any by default. With `meta`
    the weights are not read, which is enough for all but running the model.
    """

    capacity: int
    sequence: int
    dtype: str
    device: str
    meta: bool


def serve(**options: Unpack[PretrainedOptions]) -> TraceSpec:
    """Decode steps and prompts of a saved model, with its own configuration.

    Raises ValueError for an unknown dtype, and for models that `decoder_spec` refuses;
    OSError where nothing is saved.
    """
    path, device = options["path"], options.get("device", "cpu")
    config = AutoConfig.from_pretrained(path)
    kind = _dtype(options.get("dtype"), config)
    if options.get("meta"):
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=kind)
    else:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=kind).to(device)
    return decoder_spec(
        model.eval(),
        capacity=options.get("capacity") or usual_capacity(config),
        sequence=options.get("sequence") or "any",
        device=device,
    )


def usual_capacity(config: object) -> int:
    """The length of a cache where nobody says one: of most texts, and no more than the
    model has positions."""
    positions = getattr(config, "max_position_embeddings", None)
    return min(positions or USUAL_CAPACITY, USUAL_CAPACITY)


def _dtype(name: str | None, config: object) -> torch.dtype:
    """The dtype of a name, else the one that the weights were saved in."""
    kind = getattr(torch, name, None) if name else getattr(config, "dtype", None)
    if kind is None and not name:
        return torch.float32
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"dtype is {name!r}, which is none of torch's")
    return kind
