"""Attributes of other people's classes, replaced for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def replaced(owner: type, name: str, value: object) -> Iterator[None]:
    """Give a class another attribute while a block runs, and then its own again.

    One that the class only inherits, or has not, is taken away again.
    """
    had = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
