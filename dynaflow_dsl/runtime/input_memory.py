"""The memory that graphs read the inputs of a step from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch

from dynaflow_dsl.runtime.inputs import InputSpecs, dtype_of, factors
from dynaflow_dsl.runtime.model import Capture, TensorSpec
from dynaflow_dsl.runtime.replayed import Place


class InputMemory:
    """All tensors of a step's inputs, flat, and buffers for those that are copied.

    `in_place` and `copied` are positions among the flat tensors; `places` says where
    each one is found in a step's arguments, `names` how it is called, `specs` what it
    looks like. All sizes use one
    buffer for each tensor, as large as the largest captured size needs.
    """

    def __init__(
        self, capture: Capture, inputs: InputSpecs, device: torch.device
    ) -> None:
        largest = [sizes[-1] for sizes in capture.sizes.values()]
        self._largest = capture.complete(largest)
        self.capture = capture
        self.inputs = inputs
        self.device = device
        self.specs: list[TensorSpec] = []
        self._buffers: dict[int, torch.Tensor] = {}
        self.names: list[str] = []
        self.places: list[Place] = []
        self.in_place: list[int] = []
        self.copied: list[int] = []
        for position, (name, spec) in enumerate(inputs.items()):
            single = isinstance(spec, TensorSpec)
            listed = [spec] if isinstance(spec, TensorSpec) else list(spec)
            for number, one in enumerate(listed):
                kind = self.in_place if name in capture.in_place else self.copied
                kind.append(len(self.specs))
                self.names.append(name if single else f"{name}[{number}]")
                self.places.append((position, None if single else number))
                self.specs.append(one)

    @property
    def buffers(self) -> tuple[torch.Tensor, ...]:
        """All buffers that were made so far."""
        return tuple(self._buffers.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers that were made so far."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def view(self, k: int, sizes: Mapping[str, int]) -> torch.Tensor:
        """The buffer of a copied tensor in the shape of a captured size."""
        spec = self.specs[k]
        if k not in self._buffers:
            # What is made in inference mode can be written in inference mode alone.
            with torch.inference_mode(False):
                self._buffers[k] = torch.zeros(
                    prod(shape_of(spec, self._largest)),
                    dtype=dtype_of(spec.dtype),
                    device=self.device,
                )
        shape = shape_of(spec, sizes)
        return self._buffers[k][: prod(shape)].view(shape)

    def rows(
        self, k: int, sizes: Mapping[str, int], target: Mapping[str, int]
    ) -> torch.Tensor:
        """The first rows of what a captured size `target` reads, for a smaller step."""
        view = self.view(k, target)
        for axis, length in enumerate(shape_of(self.specs[k], sizes)):
            view = view.narrow(axis, 0, length)
        return view

    def filled(
        self, flat: Sequence[torch.Tensor], sizes: Mapping[str, int]
    ) -> list[torch.Tensor]:
        """A step's tensors, those that are copied in buffers that hold the same."""
        tensors = list(flat)
        for k in self.copied:
            tensors[k] = self.view(k, sizes).copy_(flat[k])
        return tensors

    def apart(
        self, flat: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]
    ) -> list[torch.Tensor] | None:
        """A step's tensors in memory that filling `targets` leaves alone.

        `targets` are of those that are copied, in their order. A caller that writes
        into buffers may hand over some rows of one, or one in the place of another;
        None where none does, which is nearly always.
        """
        buffers = [extent(buffer) for buffer in self._buffers.values()]
        lent = {
            k
            for k, target in zip(self.copied, targets, strict=True)
            if not is_same_memory(flat[k], target) and _lies_in(flat[k], buffers)
        }
        if not lent:
            return None
        return [one.clone() if k in lent else one for k, one in enumerate(flat)]


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a contiguous tensor lies: its first byte, and the one after the last."""
    start = tensor.data_ptr()
    return start, start + tensor.nbytes


def _lies_in(tensor: torch.Tensor, extents: Sequence[tuple[int, int]]) -> bool:
    first, last = extent(tensor)
    return any(first < stop and start < last for start, stop in extents)


def is_same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same elements of memory, in the same order."""
    return (
        one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
    )


def shape_of(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input in a step of these sizes."""
    shape = []
    for size in spec.shape:
        factor, names = factors(size)
        shape.append(factor * prod(sizes[name] for name in names))
    return tuple(shape)


def arranged(
    inputs: InputSpecs, flat: Sequence[torch.Tensor]
) -> tuple[torch.Tensor | list[torch.Tensor], ...]:
    """Flat tensors as a step's arguments: in lists where an input is a list."""
    rest: Iterator[torch.Tensor] = iter(flat)
    return tuple(
        next(rest) if isinstance(spec, TensorSpec) else [next(rest) for _ in spec]
        for spec in inputs.values()
    )


def allocated(
    spec: TensorSpec, sizes: Mapping[str, int], device: torch.device
) -> torch.Tensor:
    """An input of zeros, in memory of its own, that every mode can write."""
    shape: Any = shape_of(spec, sizes)
    with torch.inference_mode(False):
        return torch.zeros(shape, dtype=dtype_of(spec.dtype), device=device)
