"""A model's tensors in another's place."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def stand_in(
    model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]
) -> torch.nn.Module:
    """A module with the paths and tensors of `model`, of which `tensors` replace some
    or come beside them.

    Tensors that the model ties stay tied, and others apart even where `tensors` has one
    for both. It cannot be called: it is there to be traced with and loaded from, and
    copies nothing.
    """
    own = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    replaced = {
        id(own[path]): new.detach() for path, new in tensors.items() if path in own
    }
    held = {path: replaced.get(id(tensor), tensor) for path, tensor in own.items()}
    beside = {path: new for path, new in tensors.items() if path not in own}
    made = _Modules(type(model).__name__)
    for path, _ in model.named_modules(remove_duplicate=False):
        made.at(path)
    for path, tensor in {**held, **beside}.items():
        module, _, name = path.rpartition(".")
        made.at(module).register_buffer(name, tensor)
    return made.root.eval()


class _Modules:
    """Modules by path, made as they are asked for."""

    __slots__ = ("root",)

    def __init__(self, name: str) -> None:
        self.root: torch.nn.Module = type(name, (torch.nn.Module,), {})()

    def at(self, path: str) -> torch.nn.Module:
        """The module of a path."""
        module = self.root
        for name in path.split(".") if path else ():
            if name not in module._modules:
                module.add_module(name, torch.nn.Module())
            inner = module._modules[name]
            assert inner is not None
            module = inner
        return module
