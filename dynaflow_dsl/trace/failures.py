"""What can go wrong while tracing, in the words of whoever wrote the model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.graph.model import SourceLine
from dynaflow_dsl.trace.export import ExportFailure
from dynaflow_dsl.trace.lines import line_of_traceback, source_line

_CODE = "DFS111"

# How the note begins that has a line of the model.
_AT = "at "
_SPECIALISED = re.compile(
    r"marked (\w+) as dynamic but your code specialized it to be a constant \((\d+)\)"
)
_RANGE = re.compile(r"Not all values of (\w+) = .*")
_SUGGESTION = re.compile(r"Suggested fixes:\n((?:  .+\n?)+)")


def failure(
    message: str,
    source: SourceLine | None = None,
    notes: Iterable[str] = (),
    helps: Iterable[str] = (),
) -> Diagnostic:
    """A diagnostic of tracing, with the line of the model that it is about."""
    place = (f"{_AT}{source}",) if source else ()
    return Diagnostic(_CODE, message, notes=place + tuple(notes), helps=tuple(helps))


def has_line(item: Diagnostic) -> bool:
    """Whether a diagnostic has the line of the model that it is about."""
    return any(note.startswith(_AT) for note in item.notes)


def refuse(
    message: str,
    source: SourceLine | None = None,
    notes: Iterable[str] = (),
    helps: Iterable[str] = (),
) -> NoReturn:
    """Stop tracing; `trace` turns what is raised into its result."""
    raise DiagnosticError([failure(message, source, notes, helps)])


def refuse_one(
    entry: str,
    dimension: str,
    source: SourceLine | None,
    helps: Iterable[str] = (),
) -> NoReturn:
    """Stop at a model that computes something else where a dimension is 1."""
    refuse(
        f"entry '{entry}' does something else where {dimension} is 1, and one graph "
        "cannot hold both",
        source,
        helps=(
            *helps,
            f'if {dimension} is never 1, say so: dimensions={{"{dimension}": '
            "(2, None)}",
        ),
    )


def export_failure(failed: ExportFailure, entry: str) -> Diagnostic:
    """What a failed export means."""
    error, text = failed.reason, str(failed.reason)
    source = line_of_traceback(error.__traceback__)
    if specialised := _SPECIALISED.search(text):
        name, value = specialised.groups()
        line = source_line(*failed.fixed_at) if failed.fixed_at else source
        return failure(
            f"entry '{entry}' works for one {name} only: the model's code needs "
            f"{name} to be {value}, the size it was traced with",
            line,
            _suggestions(text),
            (
                f"write the code for any {name} ('x.shape[0]' instead of a number), "
                f"or leave {name} out of the dimensions that 'dims' names",
            ),
        )
    if limited := _RANGE.search(text):
        name = limited[1]
        return failure(
            f"entry '{entry}' does not work for every {name} that 'dimensions' allows",
            source,
            (f"torch: {limited[0].strip()}", *_suggestions(text)),
            (f"give {name} these bounds in 'dimensions'",),
        )
    if type(error).__name__ in (
        "GuardOnDataDependentSymNode",
        "PendingUnbackedSymbolNotFound",
    ):
        return failure(
            f"in entry '{entry}' the model decides by the values of a tensor which "
            "code runs next, so there is no one graph of it",
            source,
            (f"torch: {_first_line(text)}",),
            (
                "compute both branches and choose with torch.where, or take the "
                "decision outside of the model",
            ),
        )
    return failure(
        f"entry '{entry}' cannot be traced: {type(error).__name__}: "
        f"{_first_line(text)}",
        source,
        _suggestions(text),
    )


def target_failure(error: BaseException, entry: str) -> Diagnostic:
    """The target's own code failed: its adapter, or the entry's example arguments."""
    return failure(
        f"the target's adapter, or its arguments for entry '{entry}', raised "
        f"{type(error).__name__}: {_first_line(str(error))}",
        line_of_traceback(error.__traceback__),
    )


def _suggestions(text: str) -> tuple[str, ...]:
    match = _SUGGESTION.search(text)
    if not match:
        return ()
    lines = "; ".join(line.strip() for line in match[1].splitlines() if line.strip())
    return (f"torch suggests: {lines}",)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no message"
