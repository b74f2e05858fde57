"""Finds a model's tensors for the parts, and refuses a model that does not fit."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.fingerprint import first_difference, tensor_difference
from dynaflow_dsl.runtime.model import Part
from dynaflow_dsl.runtime.module_map import ModuleMap

# The weights of one iteration of a part, by the name its function reads them under.
Weights = dict[str, torch.Tensor]


def model_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by path, shared ones under each of their paths."""
    found: dict[str, torch.Tensor] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        found[path] = parameter.detach()
    for path, buffer in model.named_buffers(remove_duplicate=False):
        found[path] = buffer.detach()
    return found


def check_model(
    model: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    module_map: ModuleMap,
    device: torch.device,
    *,
    fingerprint: bool,
    anywhere: Collection[str] = (),
) -> None:
    """Raise LoadError (DFS801) at the first difference to the model of the module.

    The tensors in `anywhere` may lie in host memory as well as on the device.
    """
    module = module_map.module
    for path, submodule in model.named_modules():
        if submodule.training:
            raise LoadError(
                "DFS801",
                f"{module} was made for a model in evaluation mode, and "
                f"`{path or type(model).__name__}` is in training mode: call "
                "`model.eval()` first.",
            )
    if device.type != module_map.device:
        raise LoadError(
            "DFS801",
            f"{module} was made for the device type `{module_map.device}`, and "
            f'`device="{device}"` was asked for: compile it again for '
            f"`{device.type}`, since other devices run other operations.",
        )
    for path, (dtype, shape) in module_map.tensors.items():
        expected = f"{dtype}[{', '.join(map(str, shape))}]"
        tensor = tensors.get(path)
        if tensor is None:
            raise _misfit(
                module_map, model, f"it has no tensor `{path}`{_near(path, tensors)}"
            )
        given = _written(tensor)
        if given != expected:
            raise _misfit(
                module_map, model, f"`{path}` is {given} instead of {expected}"
            )
        if tensor.device.type == "cpu" and path in anywhere:
            continue
        if tensor.device.type == "meta":
            raise LoadError(
                "DFS801",
                f"the model's `{path}` is on `meta`, where it has no memory: load the "
                f"model's weights before {module}.",
            )
        if tensor.device != device:
            raise LoadError(
                "DFS801",
                f"{module} was loaded for `{device}`, but the model's `{path}` is on "
                f"`{tensor.device}`: move the model there first"
                # What is fetched may stay where it is.
                + (", or load with `place=True`." if anywhere else "."),
            )
    if (digest := module_map.fingerprint.get("tensors")) is not None and (
        difference := tensor_difference(digest, model, module_map.tensors)
    ):
        raise _misfit(module_map, model, difference)
    if fingerprint and (difference := first_difference(module_map.fingerprint, model)):
        raise _misfit(module_map, model, difference)


def part_weights(
    name: str, part: Part, tensors: Mapping[str, torch.Tensor], module: str
) -> list[Weights]:
    """The weights of each iteration of a part."""
    found = []
    for position in range(len(part.layers)):
        weights = {}
        for weight, path in part.paths(position).items():
            if path not in tensors:
                raise LoadError(
                    "DFS801",
                    f"{module} was made for another model: the part `{name}` takes "
                    f"`{weight}` of layer {part.layers[position]} from `{path}`, and "
                    f"the model has no such tensor{_near(path, tensors)}.",
                )
            weights[weight] = tensors[path]
        found.append(weights)
    return found


def record(weights: Mapping[str, object]) -> SimpleNamespace:
    """Weights as the record `w` that a part's function reads.

    Those of modules that run in a loop, `layers.0.q_proj`, are in a tuple of records.
    """
    fields: dict[str, object] = {}
    loops: dict[str, dict[str, dict[str, object]]] = {}
    for name, value in weights.items():
        loop, _, rest = name.partition(".")
        position, _, field = rest.partition(".")
        if field:
            loops.setdefault(loop, {}).setdefault(position, {})[field] = value
        else:
            fields[name] = value
    for loop, records in loops.items():
        fields[loop] = tuple(SimpleNamespace(**one) for one in records.values())
    return SimpleNamespace(**fields)


def _misfit(
    module_map: ModuleMap, model: torch.nn.Module, difference: str
) -> LoadError:
    return LoadError(
        "DFS801",
        f"{module_map.module} was made for another model (of class "
        f"{module_map.model_class}) than the {type(model).__name__} that it was loaded "
        f"with: {difference}. Load it with the model that it was made for, or compile "
        f"{module_map.source} again for this one.",
    )


def _near(path: str, tensors: Mapping[str, torch.Tensor]) -> str:
    near = difflib.get_close_matches(path, tensors, n=1)
    return f" (the nearest is `{near[0]}`)" if near else ""


def _written(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    text = f"{dtype}[{', '.join(map(str, tensor.shape))}]"
    # What wraps other tensors is not the plain tensor that it says it is.
    wraps = is_traceable_wrapper_subclass(tensor)
    return f"{text} of {type(tensor).__name__}" if wraps else text
