"""What a loaded model is compared by: versions, source texts and configuration."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from pathlib import Path

import torch

from dynaflow_dsl.trace.lines import is_model_code, relative_path

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


def fingerprint(model: torch.nn.Module) -> tuple[tuple[str, str], ...]:
    """Versions and hashes of 12 hex digits, by name and sorted.

    `torch` and `transformers` are versions without their local part, the class name of
    the model stands for the texts of its modules' source files, and `config` for its
    configuration.
    """
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
    return tuple(sorted(entries.items()))


def _source_digest(model: torch.nn.Module) -> str:
    """Over the files of the modules' classes, torch's own apart."""
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
    """What JSON can hold; other objects print addresses, so their class stands in."""
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
