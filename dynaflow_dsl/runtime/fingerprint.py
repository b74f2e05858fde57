"""What a model is beside its numbers: versions, code, configuration, state.

Tracing writes them into the snapshot and the map file, loading compares them: both by
this one function.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from dynaflow_dsl.runtime.configurations import (
    NOT_THE_MODEL,
    configuration_text,
    texts_with_dtypes,
)
from dynaflow_dsl.runtime.definitions import Definition, Start, definitions
from dynaflow_dsl.runtime.held_values import (
    OF_THE_MACHINE,
    SCALARS,
    Held,
    file_of,
    functions_of,
    held_values,
    hooks_of,
)
from dynaflow_dsl.runtime.model_code import (
    is_model_code,
    is_own_code,
    relative_path,
)

# Attributes of modules that say where a model came from or how it is trained.
_NOT_THE_STATE = frozenset(
    {
        "generation_config",
        "gradient_checkpointing",
        "name_or_path",
        "padding_idx",
        "training",
        "warnings_issued",
    }
)

_VERSIONS = ("torch", "transformers")

# How entries for definitions begin; the name of one follows.
_CODE = "code "


def fingerprint(model: torch.nn.Module) -> dict[str, str]:
    """Versions, the model's class, and hashes of 12 hex digits, by name."""
    held = _held(model)
    return _entries(model, held, _definitions(model, held))


def _held(model: torch.nn.Module) -> Held:
    return held_values(model, _NOT_THE_STATE, NOT_THE_MODEL)


def _entries(
    model: torch.nn.Module, held: Held, code: Mapping[str, Definition]
) -> dict[str, str]:
    entries = {
        "torch": _version(torch.__version__),
        "class": type(model).__name__,
        "classes": _digest(json.dumps(list(_classes(model)))),
    }
    transformers = sys.modules.get("transformers")
    modules = {type(module).__module__ for module in model.modules()}
    if transformers and any(name.startswith("transformers.") for name in modules):
        entries["transformers"] = _version(str(transformers.__version__))
    if configuration := configuration_text(model):
        entries["config"] = _digest(configuration)
    entries["tensors"] = _tensors_digest(dict(_tensors(model)))
    entries["state"] = _digest(json.dumps(list(_state(model))))
    entries["values"] = _digest(json.dumps(held.values))
    for key, definition in code.items():
        entries[f"{_CODE}{key}"] = definition.digest
    return entries


def without_code(entries: Mapping[str, str]) -> dict[str, str]:
    """What `fingerprint` gave but digests of code."""
    return {name: each for name, each in entries.items() if not name.startswith(_CODE)}


def first_difference(expected: Mapping[str, str], model: torch.nn.Module) -> str | None:
    """The first entry of `expected` in which `model` differs, as part of a sentence.

    Versions come first, then code, since others follow from them. `tensors` are left
    out: see `tensor_difference`.
    """
    held = _held(model)
    code = _definitions(model, held)
    given = _entries(model, held, code)
    for name in _VERSIONS:
        if name in expected and given.get(name) != expected[name]:
            installed = given.get(name, "not in use")
            return (
                f"it was traced with {name} {expected[name]}, and {name} is "
                f"{installed} here"
            )
    if "class" in expected and given["class"] != expected["class"]:
        return f"it is not a {expected['class']}"
    if (changed := _code_difference(expected, code)) is not None:
        return changed
    for name, words in _DIFFERENCES.items():
        if name in expected and given.get(name) != expected[name]:
            if name == "config" and _names_other_dtypes(expected[name], model):
                continue
            return words
    return None


_DIFFERENCES = {
    "classes": "its modules are of other classes, or lie elsewhere in it",
    "config": "its configuration differs",
    "state": "plain attributes, hooks or a replaced `forward` of its modules differ",
    "values": (
        "what its modules hold differs: tuples, functions or objects among their "
        "attributes, or values that their methods find in closures and globals"
    ),
}


def _names_other_dtypes(expected: str, model: torch.nn.Module) -> bool:
    """Whether a configuration differs in how it says what dtype the tensors have."""
    tensors = (tensor for _, tensor in _tensors(model))
    kind = next((one.dtype for one in tensors if one.is_floating_point()), None)
    return any(_digest(text) == expected for text in texts_with_dtypes(model, kind))


def _code_difference(
    expected: Mapping[str, str], here: Mapping[str, Definition]
) -> str | None:
    """Which definition of the model's code differs, and its file.

    What the model's code does not use here is not compared. Where a definition fell out
    of use, one that used it has changed; and fewer files are followed where the same
    code is installed as a package.
    """
    stems = {key.partition(".")[0] for key in here}
    # Files may be renamed.
    elsewhere = {
        each.name: each
        for key, each in here.items()
        if each.name and f"{_CODE}{key}" not in expected
    }
    changed: list[str] = []
    for entry, digest in expected.items():
        if not entry.startswith(_CODE):
            continue
        key = entry.removeprefix(_CODE)
        stem, _, name = key.partition(".")
        definition = here.get(key) or elsewhere.get(name)
        if definition is not None and definition.digest != digest:
            changed.append(_described(definition))
        elif definition is None and not name and stem in stems:
            changed.append(f"what runs when {stem}.py is imported")
    if not changed:
        return None
    more = f", and {len(changed) - 1} more" if changed[1:] else ""
    return f"the code of its classes has changed: {changed[0]}{more}"


def _described(definition: Definition) -> str:
    file = relative_path(definition.file)
    if not definition.name:
        return f"what runs when {file} is imported"
    return f"{definition.kind} `{definition.name}` in {file}"


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
            if type(value) not in SCALARS:
                continue
            if isinstance(value, str) and OF_THE_MACHINE.search(value):
                continue
            yield path, name, repr(value)
        if "forward" in vars(module):
            yield path, "forward", "patched"
        kinds = ("_forward_hooks", "_forward_pre_hooks")
        hooks = tuple(len(hooks_of(module, which)) for which in kinds)
        if any(hooks):
            yield path, "hooks", hooks


def _classes(model: torch.nn.Module) -> Iterator[tuple[str, str]]:
    for path, module in sorted(model.named_modules(remove_duplicate=False)):
        yield path, type(module).__qualname__


def _definitions(model: torch.nn.Module, held: Held) -> dict[str, Definition]:
    """The code of the classes of a model's modules, and what that uses."""
    starts: dict[Start, None] = {}
    for module_class in sorted(
        {type(module) for module in model.modules()},
        key=lambda one: (one.__module__, one.__qualname__),
    ):
        starts |= dict.fromkeys(_starts(module_class))
    # Functions and classes of the user's that modules hold may be named nowhere.
    return definitions(starts, _starts_of(held.code))


def _starts(module_class: type) -> Iterator[Start]:
    """Where a class is written, and methods that were put into it or its bases."""
    file = file_of(module_class)
    if file and is_model_code(file):
        yield Start(module_class.__qualname__.partition(".")[0], file)
    for base in module_class.__mro__:
        for value in vars(base).values():
            for function in functions_of(value):
                file = inspect.getsourcefile(function)
                name = function.__qualname__
                if file and is_own_code(file):
                    # `functools.wraps` gives a function the name of another.
                    name = function.__code__.co_qualname
                elif base is not module_class or not isinstance(value, type(function)):
                    continue
                inside = name.startswith(f"{base.__qualname__}.")
                if not inside and file and is_model_code(file):
                    yield Start(name.partition(".")[0], file)


def _starts_of(code: tuple[Any, ...]) -> Iterator[Start]:
    for one in code:
        file = inspect.getsourcefile(one)
        name = one.__qualname__ if isinstance(one, type) else one.__code__.co_qualname
        if file:
            yield Start(name.partition(".")[0], file)


def _version(version: str) -> str:
    return version.partition("+")[0]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
