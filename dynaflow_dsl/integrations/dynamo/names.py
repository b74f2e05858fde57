"""Names that callers give, and what they may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError


def similar(name: object, known: Iterable[str]) -> tuple[str, ...]:
    """The question whether the most similar of known names was meant, if one is."""
    return tuple(
        f"did you mean {each!r}?" for each in get_close_matches(str(name), known, 1)
    )


def refuse_option(message: str, *helps: str) -> NoReturn:
    """Stop at an option that is wrong, by itself or for a graph."""
    raise DiagnosticError([Diagnostic("DFS820", message, helps=helps)])
