"""What a model is beside its tensors: versions, source texts and configuration.

Tracing writes them into the snapshot and the map file, loading compares them: both by
this one function.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from dynaflow_dsl.runtime.model_code import is_model_code, relative_path

# Where a configuration came from and how text is made of it, not what is computed.
_NOT_THE_MODEL = frozenset(
    {
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "bos_token_id",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "label2id",
        "pad_token_id",
        "problem_type",
        "transformers_version",
        "use_cache",
    }
)


def fingerprint(model: torch.nn.Module) -> dict[str, str]:
    """Versions, and hashes of 12 hex digits, by name."""
    entries = {
        "torch": _version(torch.__version__),
        type(model).__name__: _source_digest(model),
    }
    transformers = sys.modules.get("transformers")
    modules = {type(module).__module__ for module in model.modules()}
    if transformers and any(name.startswith("transformers.") for name in modules):
        entries["transformers"] = _version(str(transformers.__version__))
    if configuration := _configuration(model):
        entries["config"] = _digest(configuration)
    return entries


def first_difference(expected: Mapping[str, str], model: torch.nn.Module) -> str | None:
    """The first entry of `expected` in which `model` differs, as part of a sentence."""
    given = fingerprint(model)
    for name, value in expected.items():
        if given.get(name) == value:
            continue
        if name in ("torch", "transformers"):
            installed = given.get(name, "not in use")
            return f"it was traced with {name} {value}, and {name} is {installed} here"
        if name == "config":
            return "its configuration differs"
        if name in given:
            return f"the source of its classes ({name}) differs"
        return f"it is not a {name}"
    return None


def _source_digest(model: torch.nn.Module) -> str:
    files: set[str] = set()
    for module_class in {type(module) for module in model.modules()}:
        try:
            file = inspect.getsourcefile(module_class)
        except TypeError:
            continue
        if file and is_model_code(file):
            files.add(file)
    texts = sorted(
        (relative_path(file), Path(file).read_text(encoding="utf-8")) for file in files
    )
    return _digest(json.dumps(texts))


def _configuration(model: torch.nn.Module) -> str:
    to_dict = getattr(getattr(model, "config", None), "to_dict", None)
    if not callable(to_dict):
        return ""
    return json.dumps(_plain(to_dict()), sort_keys=True)


def _plain(value: object) -> object:
    match value:
        case dict():
            return {
                str(key): _plain(element)
                for key, element in value.items()
                if key not in _NOT_THE_MODEL
            }
        case list() | tuple():
            return [_plain(element) for element in value]
        case None | bool() | int() | float() | str():
            return value
        case torch.dtype():
            return str(value)
    return type(value).__name__


def _version(version: str) -> str:
    return version.partition("+")[0]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
