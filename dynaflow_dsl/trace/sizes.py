"""Sizes of a traced program as products of named dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from dynaflow_dsl.graph.model import Size, TensorType
from dynaflow_dsl.trace.export import factor_size


class UnnamedSize(Exception):
    """A size is not an integer times a product of named dimensions."""


class SizeReader:
    """Turns symbolic sizes into `Size`, given the dimension each symbol stands for."""

    __slots__ = ("_dimensions", "_sizes")

    def __init__(self, dimensions: Mapping[str, str]) -> None:
        self._dimensions = dict(dimensions)
        self._sizes: dict[str, Size] = {}

    def size(self, value: int | torch.SymInt) -> Size:
        """The size; raises UnnamedSize where it is not a product of dimensions."""
        if isinstance(value, int):
            return Size(value)
        text = str(value)
        if text not in self._sizes:
            factors = factor_size(value)
            if factors is None:
                raise UnnamedSize(self._readable(text))
            factor, symbols = factors
            if unknown := [s for s in symbols if s not in self._dimensions]:
                raise UnnamedSize(self._readable(unknown[0]))
            names = tuple(sorted(self._dimensions[symbol] for symbol in symbols))
            self._sizes[text] = Size(factor, names)
        return self._sizes[text]

    def sizes(self, values: Iterable[int | torch.SymInt]) -> tuple[Size, ...]:
        """Several sizes."""
        return tuple(self.size(value) for value in values)

    def type(self, tensor: torch.Tensor) -> TensorType:
        """Shape, strides and dtype of a traced tensor."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        return TensorType(self.sizes(tensor.shape), self.sizes(tensor.stride()), dtype)

    def _readable(self, text: str) -> str:
        for symbol, dimension in self._dimensions.items():
            text = text.replace(symbol, dimension)
        return text
