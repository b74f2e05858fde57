"""Every message of the suite, in the forms for programs, held against the schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dynaflow_dsl.diagnostics import Diagnostic, render
from tests.diagnostics.schemas import check_output, check_sarif
from tests.messages.test_messages import CASE, FILES, messages


def found_in(file: Path) -> list[Diagnostic]:
    cases = CASE.finditer(file.read_text(encoding="utf-8"))
    return [diagnostic for case in cases for diagnostic in messages(case)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_message(file: Path) -> None:
    found = found_in(file)
    log = json.loads(render(found, "sarif"))
    check_sarif(log)
    (run,) = log["runs"]
    others = run.get("invocations", [{"toolExecutionNotifications": []}])
    shown = [*run["results"], *others[0]["toolExecutionNotifications"]]
    assert len(shown) == len(found) > 0
    entries = json.loads(render(found, "json"))
    check_output({"format": 1, "diagnostics": entries, "results": [{}]})


def broken() -> Iterator[Any]:
    """A document with one thing wrong."""
    placed = {"line": 1, "column": 1}
    label = {"file": "a.dfs", "start": placed, "end": placed, "text": ""}
    entry = {
        "code": "DFS101",
        "name": "reserved-name",
        "severity": "error",
        "message": "no name",
        "primary": label,
        "secondary": [],
        "notes": [],
        "helps": [],
    }

    def document(**changed: object) -> dict[str, Any]:
        return {"format": 1, "diagnostics": [entry | changed], "results": []}

    check_output(document())
    check_output(document(primary=None))
    yield document(code="101")
    yield document(severity="fatal")
    yield document(primary=label | {"start": {"line": 0, "column": 1}})
    yield document(primary=label | {"uri": "a.dfs"})
    yield document(colour="red")
    yield document() | {"format": 2}
    yield document() | {"results": ["text"]}
    yield document()["diagnostics"]


def test_the_schema_of_our_own_refuses_what_we_never_write() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for document in broken():
        with pytest.raises(jsonschema.ValidationError):
            check_output(document)
