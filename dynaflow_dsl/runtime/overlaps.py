"""Refuses steps whose written inputs share memory with other inputs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import pairwise

import torch

from dynaflow_dsl.runtime.errors import InputError

_address = torch.Tensor.data_ptr

# First byte, the byte after the last, and the label of a tensor.
Extent = tuple[int, int, str]


class OverlapCheck:
    """Compares the memory of written inputs with that of all inputs.

    A schedule orders steps by which input they touch, so an input that is another one
    too would be read too early. Tensors must be contiguous. Written ones, such as a
    cache, mostly stay where they are: their extents are kept from call to call.
    """

    def __init__(self, labels: Sequence[str], written: Collection[str]) -> None:
        self._labels = tuple(labels)
        marked = [label.partition("[")[0] in written for label in labels]
        self._written = [k for k, mark in enumerate(marked) if mark]
        self._others = [k for k, mark in enumerate(marked) if not mark]
        self._sizes: list[int] = []
        self._known: list[int] = []
        self._extents: list[Extent] = []
        self._starts: list[int] = []

    def resize(self, flat: Sequence[torch.Tensor]) -> None:
        """Take the sizes of the flattened arguments, which later calls keep."""
        self._sizes = [tensor.nbytes for tensor in flat]
        self._known = []

    def __call__(self, flat: Sequence[torch.Tensor]) -> None:
        """Check the flattened arguments. Raises InputError (DFS802)."""
        known = [_address(flat[k]) for k in self._written]
        if known != self._known:
            self._renew(known)
        sizes, starts, extents = self._sizes, self._starts, self._extents
        for k in self._others:
            start = _address(flat[k])
            stop = start + sizes[k]
            # The last extent that starts before `stop`; they lie one after the other.
            place = bisect_left(starts, stop) - 1
            if place >= 0 and start < extents[place][1] and start < stop:
                raise _shared(extents[place][2], self._labels[k])

    def _renew(self, known: list[int]) -> None:
        extents = sorted(
            (start, start + self._sizes[k], self._labels[k])
            for k, start in zip(self._written, known, strict=True)
            if self._sizes[k]
        )
        for before, after in pairwise(extents):
            if after[0] < before[1]:
                raise _shared(before[2], after[2])
        self._known, self._extents = known, extents
        self._starts = [start for start, _, _ in extents]


def _shared(written: str, other: str) -> InputError:
    return InputError(
        "DFS802",
        f"the inputs `{written}` and `{other}` share memory, and the step writes "
        f"into `{written}`: give it a copy, since the schedule takes each input for a "
        "memory of its own.",
    )
