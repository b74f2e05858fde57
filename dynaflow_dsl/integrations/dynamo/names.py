"""Names that callers give, and what they may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def axes_text(names: Sequence[str | None]) -> str:
    """Names of axes as a user writes them, `("batch", None)`."""
    words = ", ".join("None" if name is None else f'"{name}"' for name in names)
    return f"({words},)" if len(names) == 1 else f"({words})"


def in_options(name: str) -> str:
    """How a parameter of a schedule is named among the options of a backend."""
    return f'options["parameters"]["{name}"]'
