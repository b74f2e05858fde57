"""The form for GitHub's workflows: an annotation at the line of a pull request."""

from __future__ import annotations

from dynaflow_dsl.diagnostics.codes import explanation
from dynaflow_dsl.diagnostics.model import Diagnostic, Severity

_COMMANDS = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "notice",
}


def render_github(diagnostic: Diagnostic) -> str:
    """One workflow command, `::error file=...,line=...,col=...,title=...::message`.

    A diagnostic without a place is one of the file that it is about, else of the whole
    run. What the labels, notes and
    helps say follows the message, on lines that the annotation shows as such.
    """
    page = explanation(diagnostic.code)
    title = f"{diagnostic.code} {page.name}" if page else diagnostic.code
    properties = {"title": title}
    lines = [diagnostic.message]
    if diagnostic.primary is not None:
        span = diagnostic.primary.span
        place = {"file": span.source.name, "line": span.line, "col": span.column}
        properties = {name: str(value) for name, value in place.items()} | properties
        lines += [diagnostic.primary.text] if diagnostic.primary.text else []
    elif diagnostic.about is not None:
        properties = {"file": diagnostic.about} | properties
    lines += [
        f"{label.span}: {label.text}" for label in diagnostic.others if label.text
    ]
    lines += [f"note: {note}" for note in diagnostic.notes]
    lines += [f"help: {text}" for text in diagnostic.helps]
    listed = ",".join(f"{name}={_property(text)}" for name, text in properties.items())
    return f"::{_COMMANDS[diagnostic.severity]} {listed}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    """A message: it must not end its line, and a percent sign begins an escape."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A value among others: nor may it hold what ends one."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
