"""Modules that hold tensors by their paths, for loading and tracing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Structure:
    """The modules and tensors of a model, without the model.

    `tensors` are those without memory, by their paths: a tensor that the model ties is
    one under all of its paths.
    """

    name: str
    modules: tuple[str, ...]
    tensors: Mapping[str, torch.Tensor]

    def holding(self, tensors: Mapping[str, torch.Tensor]) -> torch.nn.Module:
        """A module of this structure that has some tensors, to be loaded from.

        Ties stay, and what the model holds apart stays apart even where `tensors` has
        one tensor for both. Nothing is copied.
        """
        given = {
            id(self.tensors[path]): tensor.detach() for path, tensor in tensors.items()
        }
        held = {
            path: given.get(id(tensor), tensor) for path, tensor in self.tensors.items()
        }
        return _module(self.name, self.modules, held)


def structure_of(model: torch.nn.Module) -> Structure:
    """The structure of a model."""
    tensors = _tensors(model)
    without_memory = {
        id(tensor): torch.empty_like(tensor, device="meta")
        for tensor in tensors.values()
    }
    return Structure(
        type(model).__name__,
        tuple(path for path, _ in model.named_modules(remove_duplicate=False)),
        {path: without_memory[id(tensor)] for path, tensor in tensors.items()},
    )


def stand_in(
    model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]
) -> torch.nn.Module:
    """A module with the paths and tensors of `model`, of which `tensors` replace some
    or come beside them.

    It cannot be called: it is there to be traced with and loaded from.
    """
    own = _tensors(model)
    given = {
        id(own[path]): tensor.detach()
        for path, tensor in tensors.items()
        if path in own
    }
    held = {path: given.get(id(tensor), tensor) for path, tensor in own.items()}
    beside = {path: tensor for path, tensor in tensors.items() if path not in own}
    modules = (path for path, _ in model.named_modules(remove_duplicate=False))
    return _module(type(model).__name__, modules, {**held, **beside})


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def _module(
    name: str, modules: Iterable[str], tensors: Mapping[str, torch.Tensor]
) -> torch.nn.Module:
    root: torch.nn.Module = type(name, (torch.nn.Module,), {})()
    for path in modules:
        _at(root, path)
    for path, tensor in tensors.items():
        module, _, own_name = path.rpartition(".")
        _at(root, module).register_buffer(own_name, tensor)
    return root.eval()


def _at(root: torch.nn.Module, path: str) -> torch.nn.Module:
    """The module of a path, made with those on the way where it is not there yet."""
    module = root
    for name in path.split(".") if path else ():
        if name not in module._modules:
            module.add_module(name, torch.nn.Module())
        inner = module._modules[name]
        assert inner is not None
        module = inner
    return module
