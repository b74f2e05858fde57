"""What a model is beside its numbers: versions, source texts, configuration, state.

Tracing writes them into the snapshot and the map file, loading compares them: both by
this one function.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import torch

from dynaflow_dsl.runtime.model_code import is_model_code, relative_path

# Where a configuration came from and how text is made of it, not what is computed.
NOT_THE_MODEL = frozenset(
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

# Attributes of modules that say where a model came from or how it is trained.
_NOT_THE_STATE = frozenset(
    {"gradient_checkpointing", "name_or_path", "padding_idx", "training"}
)

_SCALARS = (bool, int, float, str, type(None))

# Text that another process or another device writes differently.
_OF_THE_MACHINE = re.compile(r"0x[0-9a-fA-F]+|^(cpu|cuda|meta|mps|xpu)(:\d+)?$")

_VERSIONS = ("torch", "transformers")


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
    entries["tensors"] = _tensors_digest(dict(_tensors(model)))
    entries["state"] = _digest(json.dumps(list(_state(model))))
    return entries


def without_sources(entries: Mapping[str, str]) -> dict[str, str]:
    """What `fingerprint` gave but digests of source files, by the names of classes."""
    kept = (*_VERSIONS, "config", "tensors", "state")
    return {name: entries[name] for name in kept if name in entries}


def first_difference(expected: Mapping[str, str], model: torch.nn.Module) -> str | None:
    """The first entry of `expected` in which `model` differs, as part of a sentence.

    Versions come first, since others follow from them. `tensors` are left out: see
    `tensor_difference`.
    """
    given = fingerprint(model)
    names = [name for name in _VERSIONS if name in expected]
    names += [name for name in expected if name not in _VERSIONS]
    for name in names:
        if name == "tensors" or given.get(name) == expected[name]:
            continue
        if name in _VERSIONS:
            installed = given.get(name, "not in use")
            return (
                f"it was traced with {name} {expected[name]}, and {name} is "
                f"{installed} here"
            )
        if name == "config":
            return "its configuration differs"
        if name == "state":
            return (
                "plain attributes, hooks or a replaced `forward` of its modules differ"
            )
        if name in given:
            return f"the source of its classes ({name}) differs"
        return f"it is not a {name}"
    return None


def tensor_difference(
    expected: str, model: torch.nn.Module, known: Collection[str]
) -> str | None:
    """How the model's tensors differ from those with the digest `expected`.

    Part of a sentence, None when they are the same. `known` are paths of tensors that
    the module reads: not all, but usually enough to name the one that is too many.
    """
    tensors = dict(_tensors(model))
    if _tensors_digest(tensors) == expected:
        return None
    fewer = {path: tensor for path, tensor in tensors.items() if path in known}
    if len(fewer) < len(tensors) and _tensors_digest(fewer) == expected:
        extra = next(path for path in tensors if path not in known)
        return f"it has other tensors: `{extra}` is not one of the module's"
    tied = [paths for paths in _groups(tensors) if len(paths) > 1]
    if tied and _tensors_digest(tensors, ties=False) == expected:
        first, second, *_ = tied[0]
        return (
            f"it ties tensors that were apart: `{first}` and `{second}` are one tensor"
        )
    here = "it ties none"
    if tied:
        here = f"it ties `{tied[0][0]}` and `{tied[0][1]}`"
    return f"it has other tensors, or ties others, than the traced model ({here})"


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _groups(tensors: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Paths of one tensor together: by identity, since meta tensors have no memory."""
    found: dict[int, list[str]] = {}
    for path in sorted(tensors):
        found.setdefault(id(tensors[path]), []).append(path)
    return list(found.values())


def _tensors_digest(tensors: Mapping[str, torch.Tensor], *, ties: bool = True) -> str:
    groups = _groups(tensors) if ties else [[path] for path in sorted(tensors)]
    described = [
        (paths, str(tensors[paths[0]].dtype), list(tensors[paths[0]].shape))
        for paths in groups
    ]
    return _digest(json.dumps(described))


def _state(model: torch.nn.Module) -> Iterator[tuple[str, str, object]]:
    """What modules hold beside tensors and modules, as far as it is plain."""
    for path, module in sorted(model.named_modules(remove_duplicate=False)):
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or name in _NOT_THE_STATE:
                continue
            if type(value) not in _SCALARS:
                continue
            if isinstance(value, str) and _OF_THE_MACHINE.search(value):
                continue
            yield path, name, repr(value)
        if "forward" in vars(module):
            yield path, "forward", "patched"
        hooks = len(module._forward_hooks), len(module._forward_pre_hooks)
        if any(hooks):
            yield path, "hooks", hooks


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
                if key not in NOT_THE_MODEL
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
