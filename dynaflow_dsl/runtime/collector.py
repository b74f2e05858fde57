"""Python's collector of cycles, kept from running."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Keep the collector from running inside, unless somebody asks it to.

    Tracing and compiling make a great many objects that stay, and each of its full runs
    walks them all, and those of the user's process.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
