"""Names that callers give, and what they may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def similar(name: object, known: Iterable[str]) -> tuple[str, ...]:
    """The question whether the most similar of known names was meant, if one is."""
    return tuple(
        f"did you mean {each!r}?" for each in get_close_matches(str(name), known, 1)
    )
