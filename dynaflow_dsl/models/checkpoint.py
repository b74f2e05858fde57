"""Ordinary checkpoints, of which a rank reads its own share.

Weights of a safetensors file are mapped into memory and not read. Cutting a model
(`shard`) copies the rank's pieces, so that what other ranks hold is never brought in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from dynaflow_dsl.models.random_weights import dtype_named
from dynaflow_dsl.trace.replacing import replaced


def saved_model(path: str) -> PreTrainedModel:
    """The model in a folder, in evaluation mode, with its weights mapped from there.

    Where the file names weights otherwise than the model does, as for experts that are
    saved one by one, the whole model is read into memory. Raises ValueError for a
    folder without a causal language model and its weights.
    """
    folder = Path(path)
    config = _configuration(folder)
    kind = _class(config)
    options: dict[str, str] = {
        "attn_implementation": "sdpa" if kind._supports_sdpa else "eager"
    }
    if kind._can_set_experts_implementation():
        options["experts_implementation"] = "batched_mm"
    files = _files(folder)
    with _parameters_on_meta():
        model: PreTrainedModel = kind._from_config(
            config, dtype=config.dtype, **options
        )
    if not _fill(model, folder, files):
        model = kind.from_pretrained(folder, dtype=config.dtype, **options)
    return model.eval().requires_grad_(False)


def own_memory(
    model: PreTrainedModel, dtype: str | None, device: str
) -> PreTrainedModel:
    """The model with its parameters in memory of its own, in a dtype, on a device.

    Raises ValueError for an unknown dtype.
    """
    kind = dtype_named(dtype) if dtype is not None else model.dtype
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, given in module.named_parameters(recurse=False):
            if id(given) not in made:
                copied = given.detach().to(device, kind, copy=True)
                made[id(given)] = nn.Parameter(copied, requires_grad=False)
            setattr(module, name, made[id(given)])
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to(device))
    return model


def _configuration(folder: Path) -> PreTrainedConfig:
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"'{folder}' is no folder of a saved model: it has no config.json"
        )
    config: PreTrainedConfig = AutoConfig.from_pretrained(folder)
    if config.dtype is None:
        config.dtype = torch.float32
    return config


def _class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    for name in config.architectures or ():
        kind = getattr(transformers, name, None)
        if isinstance(kind, type) and issubclass(kind, PreTrainedModel):
            return kind
    raise ValueError(
        f"transformers has no class {' or '.join(config.architectures or ('?',))}, of "
        "which the saved model is"
    )


def _files(folder: Path) -> Mapping[str, str]:
    """The file of each weight, by the name that it has there."""
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    if index.is_file():
        found: dict[str, str] = json.loads(index.read_text("utf-8"))["weight_map"]
        return found
    if not (folder / SAFE_WEIGHTS_NAME).is_file():
        raise ValueError(
            f"'{folder}' has neither {SAFE_WEIGHTS_NAME} nor "
            f"{SAFE_WEIGHTS_INDEX_NAME}: save the model with save_pretrained"
        )
    with safe_open(folder / SAFE_WEIGHTS_NAME, "pt") as file:
        return dict.fromkeys(file.keys(), SAFE_WEIGHTS_NAME)


def _fill(model: PreTrainedModel, folder: Path, files: Mapping[str, str]) -> bool:
    """Map the weights into the model; False where it has some by other names."""
    paths: dict[int, list[str]] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        paths.setdefault(id(parameter), []).append(path)
    buffers = dict(model.named_buffers())
    sources = {}
    for tied in paths.values():
        source = next((path for path in tied if path in files), None)
        if source is None:
            return False
        sources[source] = tied
    for name in dict.fromkeys(files.values()):
        with safe_open(folder / name, "pt") as file:
            for path in file.keys():  # noqa: SIM118 - no mapping
                if path in sources:
                    weight = nn.Parameter(file.get_tensor(path), requires_grad=False)
                    for each in sources[path]:
                        _put(model, each, weight)
                elif path in buffers:
                    buffers[path].copy_(file.get_tensor(path))
    return True


def _put(model: nn.Module, path: str, parameter: nn.Parameter) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, parameter)


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Make modules whose parameters have no memory; buffers are computed as ever."""
    register: Callable[[nn.Module, str, nn.Parameter | None], None]
    register = nn.Module.register_parameter

    def on_meta(module: nn.Module, name: str, given: nn.Parameter | None) -> None:
        # One that is tied stays the same object.
        if given is not None and given.device.type != "meta":
            given = nn.Parameter(given.detach().to("meta"), requires_grad=False)
        register(module, name, given)

    with replaced(nn.Module, "register_parameter", on_meta):
        yield
