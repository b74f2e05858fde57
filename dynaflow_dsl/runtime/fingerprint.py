"""What a model is beside its tensors: versions, source texts and configuration.

The names and digests are those that tracing wrote into the map file; a test keeps the
two equal, since the runtime imports nothing of the compiler.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path, PurePath

import torch

_PACKAGES = ("site-packages", "dist-packages")
_PROJECT = Path(__file__).parents[2]
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
        if file and _is_model_code(file):
            files.add(file)
    texts = sorted(
        (_relative(file), Path(file).read_text(encoding="utf-8")) for file in files
    )
    return _digest(json.dumps(texts))


def _is_model_code(file: str) -> bool:
    path = PurePath(file)
    if file.startswith("<") or path.is_relative_to(Path(torch.__file__).parent):
        return False
    if path.is_relative_to(_PROJECT / "dynaflow_dsl" / "trace"):
        return False
    standard = path.is_relative_to(sysconfig.get_paths()["stdlib"])
    return not standard or any(folder in path.parts for folder in _PACKAGES)


def _relative(file: str) -> str:
    path = PurePath(file)
    for folder in _PACKAGES:
        if folder in path.parts:
            last = len(path.parts) - 1 - path.parts[::-1].index(folder)
            return PurePath(*path.parts[last + 1 :]).as_posix()
    for root in (_PROJECT, Path.cwd(), *map(Path, filter(None, sys.path))):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return path.name


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
