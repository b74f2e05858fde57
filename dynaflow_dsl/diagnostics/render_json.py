"""The form for programs: a JSON list of diagnostics."""

from __future__ import annotations

import json
from collections.abc import Iterable

from dynaflow_dsl.diagnostics.codes import explanation
from dynaflow_dsl.diagnostics.model import Diagnostic, Label
from dynaflow_dsl.source import Source


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """All diagnostics as one JSON list, with a line break at the end.

    Lines and columns are counted from one, in characters; an end lies behind the last
    character. `primary` is null where no text of the user's is at fault.
    """
    entries = [_entry(diagnostic) for diagnostic in diagnostics]
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def _entry(diagnostic: Diagnostic) -> dict[str, object]:
    page = explanation(diagnostic.code)
    return {
        "code": diagnostic.code,
        "name": page.name if page else "",
        "severity": str(diagnostic.severity),
        "message": diagnostic.message,
        "primary": _label(diagnostic.primary) if diagnostic.primary else None,
        "secondary": [_label(label) for label in diagnostic.others],
        "notes": list(diagnostic.notes),
        "helps": list(diagnostic.helps),
    }


def _label(label: Label) -> dict[str, object]:
    span = label.span
    return {
        "file": span.source.name,
        "start": _position(span.source, span.start),
        "end": _position(span.source, span.end),
        "text": label.text,
    }


def _position(source: Source, offset: int) -> dict[str, int]:
    line, column = source.position(offset)
    return {"line": line, "column": column}
