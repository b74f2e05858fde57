"""What the compiler writes: a module and its map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Module:
    """The text of a generated module and of the map file beside it.

    `name` is the module's name without `.py`; both texts end in a newline.
    """

    name: str
    text: str
    map: str
