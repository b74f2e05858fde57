"""What `load` is given, refused where a module cannot be loaded with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.kernel_sources import kernel_digest
from dynaflow_dsl.runtime.kernels import Kernel
from dynaflow_dsl.runtime.module_map import ModuleMap


def check_is_model(model: object) -> None:
    """Refuse what is no model. Raises LoadError (DFS801)."""
    if isinstance(model, torch.nn.Module):
        return
    given = f"a {type(model).__name__}"
    if model is None:
        given = "None"
    elif isinstance(model, type):
        given = f"the class {model.__name__}"
    inner = getattr(model, "model", None)
    advice = "; its model is spec.model" if isinstance(inner, torch.nn.Module) else ""
    raise LoadError(
        "DFS801",
        f"a module is loaded with a torch.nn.Module, and {given} was given{advice}.",
    )


def known_device(given: str | torch.device) -> torch.device:
    """The device as its tensors name it. Raises LoadError (DFS801)."""
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError) as error:
        raise LoadError(
            "DFS801", f"{given!r} is no device that PyTorch knows."
        ) from error
    if device.type == "cpu" and device.index == 0:
        return torch.device("cpu")
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def check_context(executors: Sequence[type[Executor]], context: object) -> None:
    """Refuse steps of pieces that would read what is meant for the whole step.

    Raises LoadError (DFS811).
    """
    needing = next((each for each in executors if each.needs_context), None)
    if needing is None or callable(context):
        return
    given = "" if context is None else f", and a {type(context).__name__} was given"
    raise LoadError(
        "DFS811",
        f"pieces of {needing.schedule} run in a context that the caller makes{given}: "
        "`load(..., context=make)`, where `make(rows)` returns the context manager for "
        "the rows of a piece.",
    )


def check_kernels(names: Mapping[str, Any], module_map: ModuleMap) -> None:
    """Refuse kernels that are not those which parts were compared with.

    `names` are those of the module. Raises LoadError (DFS801).
    """
    for name, digest in module_map.kernels.items():
        made = names.get(name)
        if not isinstance(made, Kernel) or kernel_digest(made) != digest:
            raise LoadError(
                "DFS801",
                f"the source of the kernel `{name}` is not that which "
                f"{module_map.module} was compiled with: compile {module_map.source} "
                "again, which compares the kernel with the parts that run through it.",
            )
