from __future__ import annotations

import json

from dynaflow_dsl.diagnostics import Diagnostic, Label, render
from dynaflow_dsl.source import Source, Span

SOURCE = Source("a.dfs", "dfs 1\n\nschedule order:\n")
DIAGNOSTIC = Diagnostic(
    "DFS101",
    "'order' cannot be a name here",
    Label(Span(SOURCE, 16, 21), "a word of the language"),
    (Label(Span(SOURCE, 0, 5), "edition"),),
    notes=("a note",),
    helps=("choose another name",),
)
PLACELESS = Diagnostic("DFS110", "no such module")


def test_concise() -> None:
    assert render([DIAGNOSTIC, PLACELESS], "concise") == (
        "a.dfs:3:10: error[DFS101]: 'order' cannot be a name here\n"
        "error[DFS110]: no such module\n"
    )


def test_json() -> None:
    text = render([DIAGNOSTIC, PLACELESS], "json")
    assert text.endswith("]\n")
    first, second = json.loads(text)
    assert first == {
        "code": "DFS101",
        "name": "reserved-name",
        "severity": "error",
        "message": "'order' cannot be a name here",
        "primary": {
            "file": "a.dfs",
            "start": {"line": 3, "column": 10},
            "end": {"line": 3, "column": 15},
            "text": "a word of the language",
        },
        "secondary": [
            {
                "file": "a.dfs",
                "start": {"line": 1, "column": 1},
                "end": {"line": 1, "column": 6},
                "text": "edition",
            }
        ],
        "notes": ["a note"],
        "helps": ["choose another name"],
    }
    assert second["primary"] is None


def test_json_without_diagnostics_is_a_list() -> None:
    assert json.loads(render([], "json")) == []
