"""The form for code scanning: one SARIF 2.1.0 log.

Code scanning refuses a log in which a result has no place. What has none, such as a
module that is missing, is a notification of the run: the log's own place for what
concerns no file that was analysed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from dynaflow_dsl import __version__
from dynaflow_dsl.diagnostics.codes import explanation
from dynaflow_dsl.diagnostics.model import Diagnostic, Label, Severity

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/"
    "sarif-schema-2.1.0.json"
)

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render_sarif(diagnostics: Iterable[Diagnostic]) -> str:
    """All diagnostics as one log, with a line break at the end.

    Its rules are the pages of the codes that were found. Files are named as on the
    command line, relative to the folder that dfsc ran in.
    """
    found = tuple(diagnostics)
    codes = sorted({diagnostic.code for diagnostic in found})
    placed = [diagnostic for diagnostic in found if diagnostic.primary is not None]
    others = [diagnostic for diagnostic in found if diagnostic.primary is None]
    run: dict[str, object] = {
        "tool": {
            "driver": {
                "name": "dfsc",
                "semanticVersion": __version__,
                "rules": [_rule(code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(diagnostic, codes) for diagnostic in placed],
    }
    if others:
        notifications = [_notification(diagnostic, codes) for diagnostic in others]
        # It ran to its end, or there would be no log.
        run["invocations"] = [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": notifications,
            }
        ]
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
        "fullDescription": {"text": page.summary},
        "help": {"text": page.text, "markdown": page.text},
    }


def _result(diagnostic: Diagnostic, codes: Sequence[str]) -> dict[str, object]:
    result: dict[str, object] = {
        "ruleId": diagnostic.code,
        "ruleIndex": codes.index(diagnostic.code),
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": _message(diagnostic)},
    }
    if diagnostic.primary is not None:
        result["locations"] = [_location(diagnostic.primary)]
    if diagnostic.others:
        result["relatedLocations"] = [
            {"id": number, **_location(label)}
            for number, label in enumerate(diagnostic.others, 1)
        ]
    return result


def _notification(diagnostic: Diagnostic, codes: Sequence[str]) -> dict[str, object]:
    return {
        "descriptor": {
            "id": diagnostic.code,
            "index": codes.index(diagnostic.code),
        },
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": _message(diagnostic)},
    }


def _message(diagnostic: Diagnostic) -> str:
    remarks = [f"note: {note}" for note in diagnostic.notes]
    remarks += [f"help: {text}" for text in diagnostic.helps]
    return "\n".join([diagnostic.message, *remarks])


def _location(label: Label) -> dict[str, object]:
    span = label.span
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    location: dict[str, object] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(span.source.name)},
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


def _uri(name: str) -> str:
    path = Path(name)
    return path.as_uri() if path.is_absolute() else quote(name)
