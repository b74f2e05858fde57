"""Steps as a schedule file writes them."""

from __future__ import annotations

from collections.abc import Sequence

from dynaflow_dsl.resolve.model import Step


def step_label(step: Step, pieces: Sequence[str]) -> str:
    """A step without what it comes after: `prev.mlp[1]`, `attn[decode]`, `mix[*]`.

    `pieces` are the names of the pieces.
    """
    name = f"{'prev.' if step.previous else ''}{step.part}"
    if len(pieces) == 1:
        return name
    return f"{name}[{'*' if step.piece is None else pieces[step.piece]}]"


def step_text(step: Step, pieces: Sequence[str]) -> str:
    """A whole step: `experts after shared`."""
    text = step_label(step, pieces)
    if not step.after:
        return text
    if len(step.after) == 1:
        return f"{text} after {step_label(step.after[0], pieces)}"
    # One reference without an index, to all pieces.
    first = step.after[0]
    return f"{text} after {'prev.' if first.previous else ''}{first.part}"
