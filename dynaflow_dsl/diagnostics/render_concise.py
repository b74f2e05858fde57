"""The form for lists: one line each, as compilers and editors expect it."""

from __future__ import annotations

from dynaflow_dsl.diagnostics.model import Diagnostic


def render_concise(diagnostic: Diagnostic) -> str:
    """`file:line:column: severity[code]: message`, without a place if there is none.

    Text that a `use` brought in has that place behind the message.
    """
    text = f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"
    if diagnostic.primary is None:
        return text
    span = diagnostic.primary.span
    uses = "".join(f" (used at {use})" for use in span.uses)
    return f"{span}: {text}{uses}"
