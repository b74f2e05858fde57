"""Is a model still the one that was scheduled?

Steps read the tensors that its modules had when it was loaded, and call no module:
other tensors, other modules and hooks would go unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch

_Tensors: TypeAlias = Mapping[str, torch.Tensor | None]
_Modules: TypeAlias = Mapping[str, torch.nn.Module | None]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class Watch:
    """Looks at every tensor and module of a model, without walking its tree again.

    Hooks of `libraries` do not count: they leave some that do nothing unless hidden
    states are asked for.
    """

    def __init__(self, model: torch.nn.Module, *libraries: str) -> None:
        self._libraries = frozenset(libraries)
        self._tensors: list[tuple[_Tensors, str, str, int]] = []
        self._modules: list[tuple[_Modules, str, str, torch.nn.Module]] = []
        for path, module in model.named_modules():
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


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
