"""`load(check="full")`: the model is traced again, and its graphs are compared."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import torch

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.facts import Fact
from dynaflow_dsl.runtime.inputs import dtype_of
from dynaflow_dsl.runtime.module_map import ModuleMap


def check_graphs(
    model: torch.nn.Module, device: torch.device, module_map: ModuleMap, module: Path
) -> dict[str, tuple[Fact, str]]:
    """Raise LoadError (DFS801) where the model has other operations than the module.

    Returns the facts that the trace target says, each with what says so.
    """
    if not module_map.target:
        raise LoadError(
            "DFS801",
            f"{module_map.module} has no trace target to trace the model with: its "
            "graph was captured by torch.compile, whose backend compares it whenever "
            'it compiles. `check="quick"` compares without tracing.',
        )
    # By name, since the runtime stands without the compiler, and only this needs it.
    again = import_module("dynaflow_dsl.trace.again")
    traced = again.trace_again(
        _located(module_map.target, module),
        module_map.target_arguments,
        model,
        device.type,
        dtype_of(module_map.dtype),
    )
    if traced.value is None:
        said = "; ".join(item.message for item in traced.diagnostics)
        raise LoadError(
            "DFS801",
            f"{module_map.module} cannot be compared with the model, which is not "
            f'traced as {module_map.target} says: {said}. `check="quick"` compares '
            "without tracing.",
        )
    for entry, digest in module_map.graphs.items():
        here = traced.value.graphs.get(entry)
        if here is None:
            raise LoadError(
                "DFS801",
                f"{module_map.module} has the entry `{entry}`, which "
                f"{module_map.target} has no more: compile {module_map.source} again.",
            )
        if here != digest:
            raise LoadError(
                "DFS801",
                f"the model runs other operations than {module_map.module} was made "
                f"of: its graph for the entry `{entry}` is {here}, and the module's "
                f"is {digest}. Load it with the model that it was made for, or compile "
                f"{module_map.source} again; `dfsc compile --check "
                f"{module_map.source}` names the first part that differs.",
            )
    return {
        name: (value, f"the trace target {module_map.target}")
        for name, value in traced.value.facts.items()
    }


def _located(target: str, module: Path) -> str:
    """A target in a file by a path from here, else from a folder around the module."""
    place, _, function = target.rpartition(":")
    path = Path(place)
    if path.suffix != ".py" or path.is_absolute() or path.is_file():
        return target
    around = (folder / path for folder in module.absolute().parents)
    found = next((one for one in around if one.is_file()), path)
    return f"{found}:{function}"
