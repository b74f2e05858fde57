"""The form for code scanning: one SARIF 2.1.0 log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from dynaflow_dsl import __version__
from dynaflow_dsl.diagnostics.codes import explanation
from dynaflow_dsl.diagnostics.model import Diagnostic, Label, Severity

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render_sarif(diagnostics: Iterable[Diagnostic]) -> str:
    """All diagnostics as one log, with a line break at the end.

    Its rules are the pages of the codes that were found. Files are named as on the
    command line, relative to the folder that dfsc ran in.
    """
    found = tuple(diagnostics)
    codes = sorted({diagnostic.code for diagnostic in found})
    driver = {
        "name": "dfsc",
        "semanticVersion": __version__,
        "rules": [_rule(code) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(diagnostic, codes) for diagnostic in found],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _rule(code: str) -> dict[str, object]:
    page = explanation(code)
    if page is None:
        return {"id": code}
    return {
        "id": code,
        "name": page.name,
        "shortDescription": {"text": page.summary},
        "help": {"text": page.text, "markdown": page.text},
    }


def _result(diagnostic: Diagnostic, codes: Sequence[str]) -> dict[str, object]:
    remarks = [f"note: {note}" for note in diagnostic.notes]
    remarks += [f"help: {text}" for text in diagnostic.helps]
    result: dict[str, object] = {
        "ruleId": diagnostic.code,
        "ruleIndex": codes.index(diagnostic.code),
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": "\n".join([diagnostic.message, *remarks])},
    }
    if diagnostic.primary is not None:
        result["locations"] = [_location(diagnostic.primary)]
    if diagnostic.secondary:
        result["relatedLocations"] = [
            {"id": number, **_location(label)}
            for number, label in enumerate(diagnostic.secondary, 1)
        ]
    return result


def _location(label: Label) -> dict[str, object]:
    span = label.span
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    location: dict[str, object] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(span.source.name)},
            "region": {
                "startLine": line,
                "startColumn": column,
                "endLine": end_line,
                "endColumn": end_column,
            },
        }
    }
    if label.text:
        location["message"] = {"text": label.text}
    return location
