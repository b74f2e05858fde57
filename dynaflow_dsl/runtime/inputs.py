"""Checks what a step is called with, at a cost that is small beside the step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from dynaflow_dsl.runtime.errors import InputError
from dynaflow_dsl.runtime.model import TensorSpec
from dynaflow_dsl.runtime.overlaps import OverlapCheck

InputSpecs: TypeAlias = Mapping[str, TensorSpec | Sequence[TensorSpec]]

# Inclusive bounds of named dimensions, None for no upper bound.
Bounds: TypeAlias = Mapping[str, tuple[int, int | None]]


def factors(size: int | str) -> tuple[int, tuple[str, ...]]:
    """A size as an integer times named dimensions: `"4 * batch"` is (4, ("batch",))."""
    if isinstance(size, int):
        return size, ()
    factor, names = 1, []
    for word in (word.strip() for word in size.split("*")):
        if word.isdigit():
            factor *= int(word)
        else:
            names.append(word)
    return factor, tuple(names)


def dtype_of(name: str) -> torch.dtype:
    """The dtype of a name such as `float32`."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


# How many shapes are kept that were found to be right.
_MOST_ACCEPTED = 256


@dataclass(slots=True)
class _Accepted:
    """Shapes that were found to be right together, and the sizes they stand for."""

    expected: tuple[tuple[torch.Size, torch.dtype, type[torch.Tensor]], ...]
    overlaps: OverlapCheck | None
    sizes: dict[str, int]


class InputCheck:
    """Checks the arguments of one entry; remembers the shapes that it accepted.

    `written` names the arguments whose tensors a step writes in place. Calling it gives
    the sizes of the named dimensions. Raises InputError (DFS802).
    """

    def __init__(
        self,
        inputs: InputSpecs,
        device: torch.device,
        dimensions: Bounds | None = None,
        written: Collection[str] = (),
    ) -> None:
        self._inputs = inputs
        self._device = device
        self._dimensions = dimensions or {}
        self._written = written
        self._names = tuple(inputs)
        self._lengths = tuple(
            None if isinstance(spec, TensorSpec) else len(spec)
            for spec in inputs.values()
        )
        self._labels = _labels(inputs)
        # By the shape of the first tensor, which differs where sizes do.
        self._accepted: dict[torch.Size, _Accepted] = {}

    def arrange(
        self, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """Positional arguments from positional and keyword arguments."""
        expected = f"expected {len(self._names)} inputs ({', '.join(self._names)})"
        if len(arguments) > len(self._names):
            raise InputError("DFS802", f"{expected}, but {len(arguments)} were given.")
        given = dict(zip(self._names, arguments, strict=False))
        for name, value in named.items():
            if name not in self._inputs:
                raise InputError("DFS802", f"{expected}; `{name}` is none of them.")
            if name in given:
                raise InputError("DFS802", f"the input `{name}` was given twice.")
            given[name] = value
        missing = [name for name in self._names if name not in given]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            raise InputError("DFS802", f"{expected}, but {names} is missing.")
        return tuple(given[name] for name in self._names)

    def sizes(self, sizes: Mapping[str, int]) -> None:
        """Refuse sizes that are not one for each dimension, within its bounds."""
        names = dimensions_of(self._inputs)
        if sizes.keys() != set(names):
            wanted = ", ".join(names) or "none"
            given = ", ".join(sizes) or "none"
            raise InputError(
                "DFS802", f"expected a size for each of {wanted}; given {given}."
            )
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int):
                raise InputError(
                    "DFS802",
                    f"the size of `{name}` is a whole number, and {name} = {size!r}.",
                )
        for name, bounds in self._dimensions.items():
            _check_bounds(name, sizes[name], bounds, "")

    def __call__(self, arguments: Sequence[Any]) -> dict[str, int]:
        """Sizes of the named dimensions of `arguments`, in the order of the inputs."""
        flat: list[Any] = []
        for argument, length in zip(arguments, self._lengths, strict=True):
            if length is None:
                flat.append(argument)
            elif type(argument) in (list, tuple):
                flat.extend(argument)
            else:
                break
        device = self._device
        try:
            accepted = self._accepted.get(flat[0].shape) if flat else None
            if accepted is not None and len(flat) == len(accepted.expected):
                pairs = zip(flat, accepted.expected, strict=True)
                for tensor, (shape, dtype, kind) in pairs:
                    if (
                        tensor.shape != shape
                        or tensor.dtype is not dtype
                        or type(tensor) is not kind
                        or tensor.device != device
                        or not tensor.is_contiguous()
                    ):
                        break
                else:
                    if accepted.overlaps is not None:
                        accepted.overlaps(flat)
                    return accepted.sizes
        except AttributeError:  # not a tensor: the full check says so
            pass
        return self._check(arguments)

    def _check(self, arguments: Sequence[Any]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        origins: dict[str, str] = {}
        accepted: list[tuple[torch.Size, torch.dtype, type[torch.Tensor]]] = []
        flat: list[torch.Tensor] = []
        for (name, spec), argument in zip(self._inputs.items(), arguments, strict=True):
            if isinstance(spec, TensorSpec):
                pairs = [(name, spec, argument)]
            else:
                if not isinstance(argument, list | tuple):
                    raise _unexpected(
                        name, f"a list of {len(spec)} tensors", _describe(argument)
                    )
                if len(argument) != len(spec):
                    given = f"a list of {len(argument)}"
                    raise _unexpected(name, f"a list of {len(spec)} tensors", given)
                pairs = [
                    (f"{name}[{k}]", one, argument[k]) for k, one in enumerate(spec)
                ]
            for label, one, tensor in pairs:
                self._check_tensor(label, one, tensor, sizes, origins)
                accepted.append((tensor.shape, tensor.dtype, type(tensor)))
                flat.append(tensor)
        for name, bounds in self._dimensions.items():
            size = sizes.get(name, bounds[0])
            _check_bounds(name, size, bounds, f" in `{origins.get(name, name)}`")
        overlaps = OverlapCheck(self._labels, self._written) if self._written else None
        if overlaps is not None:
            overlaps.resize(flat)
            overlaps(flat)
        if flat:
            if len(self._accepted) >= _MOST_ACCEPTED:
                self._accepted.clear()
            found = _Accepted(tuple(accepted), overlaps, sizes)
            self._accepted[flat[0].shape] = found
        return sizes

    def _check_tensor(
        self,
        label: str,
        spec: TensorSpec,
        tensor: Any,
        sizes: dict[str, int],
        origins: dict[str, str],
    ) -> None:
        expected = f"{spec} on {self._device}"
        given = _describe(tensor)
        if (
            not isinstance(tensor, torch.Tensor)
            or tensor.dtype is not dtype_of(spec.dtype)
            or tensor.device != self._device
            or tensor.dim() != len(spec.shape)
        ):
            raise _unexpected(label, expected, given)
        # To compiled code it would be the one tensor that it says it is.
        if is_traceable_wrapper_subclass(tensor):
            kind = type(tensor).__name__
            raise _unexpected(
                label,
                f"a plain tensor {expected}",
                f"a {kind}, which holds tensors of its own: take the plain one out of "
                "it (`to_local()`, `dequantize()`)",
            )
        for size, actual in zip(spec.shape, tensor.shape, strict=True):
            factor, names = factors(size)
            unknown = [name for name in names if name not in sizes]
            if len(unknown) == 1 and actual % factor == 0:
                sizes[unknown[0]] = actual // factor
                origins[unknown[0]] = label
            for name in names:
                factor *= sizes.get(name, 0)
            if factor != actual:
                known = ", ".join(
                    f"{name} = {sizes[name]} in `{origins[name]}`"
                    for name in names
                    if name in sizes and origins[name] != label
                )
                because = f" ({known})" if known else ""
                raise _unexpected(label, expected + because, given)
            if actual == 0 and names:
                raise _unexpected(label, f"{expected}, with at least one row", given)
        if not tensor.is_contiguous():
            strides = tuple(tensor.stride())
            raise _unexpected(
                label, f"a contiguous {expected}", f"{given} with strides {strides}"
            )


def dimensions_of(inputs: InputSpecs) -> tuple[str, ...]:
    """The named dimensions of an entry's inputs, in order of appearance."""
    names: dict[str, None] = {}
    for spec in inputs.values():
        for one in [spec] if isinstance(spec, TensorSpec) else spec:
            for size in one.shape:
                names |= dict.fromkeys(factors(size)[1])
    return tuple(names)


def _check_bounds(
    name: str, size: int, bounds: tuple[int, int | None], where: str
) -> None:
    low, high = bounds
    if size >= low and (high is None or size <= high):
        return
    known = f"{low} upwards" if high is None else f"{low} to {high}"
    raise InputError(
        "DFS802",
        f"the dimension `{name}` was traced from {known}, and {name} = {size}{where}.",
    )


def _labels(inputs: InputSpecs) -> list[str]:
    """One label per tensor of the flattened arguments."""
    found: list[str] = []
    for name, spec in inputs.items():
        if isinstance(spec, TensorSpec):
            found.append(name)
        else:
            found += [f"{name}[{k}]" for k in range(len(spec))]
    return found


def _unexpected(label: str, expected: str, given: str) -> InputError:
    return InputError("DFS802", f"input `{label}`: expected {expected}, given {given}.")


def _describe(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype}[{', '.join(map(str, value.shape))}] on {value.device}"
