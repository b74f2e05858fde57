"""An engine's operator, which reads in a context what it is not given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# What the engine writes before each step: a number for each of its rows.
PLACES = torch.arange(100, 116)

# Which rows of the step an operator is called for; those of the piece come last.
_rows = [slice(0, None)]


@torch.library.custom_op("engine_context::add_places", mutates_args=())
def add_places(x: torch.Tensor) -> torch.Tensor:
    return x + PLACES[_rows[-1]][: x.shape[0], None]


@add_places.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@contextmanager
def piece(rows: slice) -> Iterator[None]:
    _rows.append(rows)
    try:
        yield
    finally:
        _rows.pop()
