"""Where tensors lie in memory, compared in every call of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def addresses_of(given: Sequence[Any], positions: Sequence[int]) -> list[int | None]:
    """The addresses of the tensors at these positions, None at all others."""
    found: list[int | None] = [None] * len(given)
    for position in positions:
        found[position] = given[position].data_ptr()
    return found


def _lie_at(
    given: list[Any], addresses: list[int | None], positions: list[int]
) -> bool:
    here = [given[each].data_ptr() for each in positions]
    return here == [addresses[each] for each in positions]


# Whether tensors lie where others did: for the hundreds of weights of a model, in one
# call into torch where its build has one (those for CUDA).
lie_at: Callable[[list[Any], list[int | None], list[int]], bool] = getattr(
    torch._C, "_tensors_data_ptrs_at_indices_equal", _lie_at
)
