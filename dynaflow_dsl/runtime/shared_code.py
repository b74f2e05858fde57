"""Compiled parts that several loads of a module share while they are compared.

Inductor tries out on the device which of several kernels is fastest, each time that it
loads a part. Two of them can add in another order, so executors that are to be equal
bit for bit have to run the very same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_SHARED: ContextVar[dict[str, Any] | None] = ContextVar("shared", default=None)


@contextmanager
def shared_code() -> Iterator[None]:
    """Let modules that are loaded inside compile equal parts once for all of them."""
    token = _SHARED.set({} if (outer := _SHARED.get()) is None else outer)
    try:
        yield
    finally:
        _SHARED.reset(token)


def code_of_this_load() -> dict[str, Any]:
    """Where a load keeps what it compiles, by key: its own, unless it shares."""
    shared = _SHARED.get()
    return {} if shared is None else shared
