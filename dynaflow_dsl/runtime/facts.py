"""The facts that a module was made with, against those of where it is loaded."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
import torch.distributed

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.groups import players, running_ranks
from dynaflow_dsl.runtime.module_map import ModuleMap

Fact: TypeAlias = bool | int | float | str

# What a fact is here, and what says so.
Known: TypeAlias = Mapping[str, tuple[Fact, str]]


def facts_here(model: torch.nn.Module, device: torch.device) -> dict[str, Any]:
    """The facts that a process knows by itself, each with what says so.

    `model` is the name of the model's class, `arch` that of a CUDA device (`sm90`).
    `tp_size` and `tp_rank` are those of the group that plays the role `tp`, and alike
    for other roles; `world_size` is the number of all ranks, where there are some.
    """
    found: dict[str, tuple[Fact, str]] = {
        "model": (type(model).__name__, "the class of the model")
    }
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        found["arch"] = (f"sm{major}{minor}", f"the device {device}")
    for role, group in players().items():
        said = f"the group that plays the role '{role}'"
        found[f"{role}_size"] = (group.size(), said)
        found[f"{role}_rank"] = (group.rank(), said)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        _, size = running_ranks()
        found["world_size"] = (size, "torch.distributed")
    return found


def facts_given(given: object) -> dict[str, tuple[Fact, str]]:
    """What the caller of `load` says; LoadError (DFS809) for what are no facts."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise LoadError(
            "DFS809",
            f"`facts` is a {type(given).__name__}; it is a mapping by name, such as "
            '`facts={"arch": "sm90"}`.',
        )
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, bool | int | float | str):
            raise LoadError(
                "DFS809",
                f"the fact {name!r} is a {type(value).__name__}; facts are numbers, "
                "strings and truth values, by name.",
            )
    return {name: (value, "`facts` of `load`") for name, value in given.items()}


def check_facts(module_map: ModuleMap, known: Known) -> None:
    """Raise LoadError (DFS809) at the first fact that is another one here.

    Facts of the module that nothing here knows are not compared.
    """
    for name, made_with in module_map.facts.items():
        if name not in known:
            continue
        here, says = known[name]
        if _same(made_with, here):
            continue
        given = name in module_map.given_facts
        target = module_map.target or "the program that compiled it"
        origin = "by -F" if given else f"as {target} said"
        raise LoadError(
            "DFS809",
            f"{module_map.module} was made for {name} = {written(made_with)}, {origin}"
            f", and {says} says that {name} is {written(here)} here: "
            f"{_repair(module_map, name, here, given=given)}.",
        )


def written(fact: Fact) -> str:
    """A fact as a command line writes it."""
    return str(fact).lower() if isinstance(fact, bool) else str(fact)


def _same(one: Fact, other: Fact) -> bool:
    # True is 1 to Python, and not to a `require`.
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _repair(module_map: ModuleMap, name: str, here: Fact, *, given: bool) -> str:
    if not module_map.target:
        return (
            f"load it where {name} is {written(module_map.facts[name])}, or run that "
            f"program again where it says that {name} is {written(here)}"
        )
    if not given:
        return (
            f"load it where {name} is {written(module_map.facts[name])}, or compile "
            f"{module_map.source} again with a trace target whose {name} is "
            f"{written(here)}"
        )
    facts = {**module_map.given_facts, name: here}
    words = ["dfsc", "compile", module_map.source]
    for parameter, text in module_map.given_parameters.items():
        words += ["-P", f"{parameter}={text}"]
    for fact, value in facts.items():
        words += ["-F", f"{fact}={written(value)}"]
    return f"compile it for this machine, `{shlex.join(words)}`"
