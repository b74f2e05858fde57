"""Is a model still the one that was scheduled?

Steps read the tensors that its modules had when it was loaded, and call no module:
other tensors, other modules, another configuration and hooks would go unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.configurations import NOT_THE_MODEL

_Tensors: TypeAlias = Mapping[str, torch.Tensor | None]
_Modules: TypeAlias = Mapping[str, torch.nn.Module | None]

# What a configuration says of calls, and not of what a step computes.
_OF_CALLS = frozenset(
    {"_output_attentions", "output_attentions", "output_hidden_states", "return_dict"}
)

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class Watch:
    """Looks at every tensor and module of a model, without walking its tree again, and
    at its configurations.

    Hooks of `libraries` do not count: they leave some that do nothing unless hidden
    states are asked for.
    """

    def __init__(self, model: torch.nn.Module, *libraries: str) -> None:
        self._libraries = frozenset(libraries)
        self._tensors: list[tuple[_Tensors, str, str, int]] = []
        self._modules: list[tuple[_Modules, str, str, torch.nn.Module]] = []
        self._configurations: dict[int, tuple[Any, dict[str, Any]]] = {}
        for path, module in model.named_modules():
            for config in _configurations(getattr(module, "config", None)):
                if id(config) not in self._configurations:
                    self._configurations[id(config)] = config, _computed(config)
            for table in (module._parameters, module._buffers):
                self._tensors += [
                    (table, name, _joined(path, name), tensor.data_ptr())
                    for name, tensor in table.items()
                    if tensor is not None
                ]
            self._modules += [
                (module._modules, name, _joined(path, name), child)
                for name, child in module._modules.items()
                if child is not None
            ]

    def change(self) -> str | None:
        """What is not as it was, as part of a sentence; None if all is."""
        for table, name, path, address in self._tensors:
            tensor = table.get(name)
            if tensor is None or tensor.data_ptr() != address:
                return (
                    f"`{path}` was moved or replaced since the model was scheduled: "
                    "schedule it again"
                )
        for config, before in self._configurations.values():
            now = _computed(config)
            for name in (*before, *(name for name in now if name not in before)):
                if before.get(name) != now.get(name):
                    said = name.removeprefix("_").removesuffix("_internal")
                    return (
                        f"`{said}` of its configuration is another than when the "
                        "model was scheduled: schedule it again"
                    )
        for children, name, path, module in self._modules:
            if children.get(name) is not module:
                return (
                    f"`{path}` is another module than when the model was scheduled: "
                    "schedule it again"
                )
            if "forward" in vars(module):
                return f"the `forward` of `{path}` was replaced"
            if self._has_hooks(module):
                return f"`{path}` has hooks, which steps do not call"
        return None

    def _has_hooks(self, module: torch.nn.Module) -> bool:
        for kind in _HOOKS:
            for hook in getattr(module, kind).values():
                home = getattr(hook, "__module__", None) or ""
                if home.partition(".")[0] not in self._libraries:
                    return True
        return False


def _configurations(config: object) -> Iterator[Any]:
    """A configuration of `transformers`, and those that it holds."""
    if callable(getattr(config, "to_dict", None)):
        yield config
        for inner in vars(config).values():
            yield from _configurations(inner)


def _computed(config: object) -> dict[str, Any]:
    """What a configuration says of what a step computes; those in it say it apart."""
    return {
        name: deepcopy(value)
        for name, value in vars(config).items()
        if name not in NOT_THE_MODEL
        and name not in _OF_CALLS
        and not callable(getattr(value, "to_dict", None))
    }


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
