"""What one of several ranks holds of a tensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it


@dataclass(frozen=True, slots=True)
class Share:
    """The share of `rank` in what `ways` ranks hold together.

    Raises ValueError for a rank that is none of them.
    """

    ways: int
    rank: int

    def __post_init__(self) -> None:
        if self.ways < 1 or not 0 <= self.rank < self.ways:
            raise ValueError(
                f"rank is {self.rank} of {self.ways} ways; ranks are counted from 0"
            )

    def even(self, whole: int, what: str) -> int:
        """Number of each rank's pieces; raises ValueError where they are uneven."""
        if whole % self.ways:
            raise ValueError(
                f"{self.ways} ranks cannot share {whole} {what} evenly; choose a "
                f"number of ranks that divides {whole}"
            )
        return whole // self.ways

    def even_or_repeated(self, units: int, what: str) -> None:
        """Raise ValueError where `cut_or_repeat` does."""
        if units >= self.ways:
            self.even(units, what)
        elif self.ways % units:
            raise ValueError(
                f"{self.ways} ranks cannot share {units} {what} evenly; choose a "
                f"number of ranks that divides {units} or is a multiple of it"
            )

    def cut(
        self, tensor: torch.Tensor, axis: int, what: str, units: int | None = None
    ) -> torch.Tensor:
        """The rank's piece of `tensor` along `axis`, in memory of its own.

        The axis consists of `units` pieces of one size that stay together, such as
        heads, or of single elements.
        """
        count = self.even(units or tensor.shape[axis], what)
        width = tensor.shape[axis] // units if units else 1
        piece = tensor.narrow(axis, self.rank * count * width, count * width)
        return piece.clone(memory_format=torch.contiguous_format)

    def cut_or_repeat(
        self, tensor: torch.Tensor, axis: int, what: str, units: int
    ) -> torch.Tensor:
        """As `cut`; with more ranks than units, several ranks hold the same unit.

        So a key-value head is held by all ranks whose query heads attend with it.
        """
        self.even_or_repeated(units, what)
        if units >= self.ways:
            return self.cut(tensor, axis, what, units)
        width = tensor.shape[axis] // units
        unit = self.rank * units // self.ways
        piece = tensor.narrow(axis, unit * width, width)
        return piece.clone(memory_format=torch.contiguous_format)

    def cut_packed(self, tensor: torch.Tensor, axis: int, what: str) -> torch.Tensor:
        """The rank's piece of each half of `axis`, as in a fused gate and up."""
        halves = tensor.chunk(2, axis)
        return torch.cat([self.cut(half, axis, what) for half in halves], axis)

    def cut_padded(self, tensor: torch.Tensor) -> torch.Tensor:
        """The rank's rows, all ranks having equally many; zeros fill the last's."""
        count = self.padded(tensor.shape[0])
        first = min(self.rank * count, tensor.shape[0])
        piece = tensor[first : min(first + count, tensor.shape[0])]
        missing = count - piece.shape[0]
        return F.pad(piece, (0, 0) * (tensor.ndim - 1) + (0, missing)).clone()

    def padded(self, whole: int) -> int:
        """Number of rows that each rank holds of `whole`, padding included."""
        return -(-whole // self.ways)
