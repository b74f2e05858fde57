"""The forms that services read: GitHub's workflow commands, and SARIF."""

from __future__ import annotations

import json

from dynaflow_dsl import __version__
from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity, explanation, render
from dynaflow_dsl.source import Source, Span
from tests.diagnostics.schemas import check_sarif

SOURCE = Source("a b/x,y:1.dfs", "dfs 1\n\nschedule order:\n")
DIAGNOSTIC = Diagnostic(
    "DFS101",
    "'order' cannot be a name here",
    Label(Span(SOURCE, 16, 21), "a word of the language"),
    (Label(Span(SOURCE, 0, 5), "edition"),),
    notes=("100 % of\nthe time",),
    helps=("choose another name",),
)
WARNING = Diagnostic("DFS502", "another model", severity=Severity.WARNING)
INFO = Diagnostic("DFS703", "held", severity=Severity.INFO)


def test_github() -> None:
    assert render([DIAGNOSTIC, WARNING, INFO], "github") == (
        "::error file=a b/x%2Cy%3A1.dfs,line=3,col=10,title=DFS101 reserved-name"
        "::'order' cannot be a name here%0Aa word of the language"
        "%0Aa b/x,y:1.dfs:1:1: edition%0Anote: 100 %25 of%0Athe time"
        "%0Ahelp: choose another name\n"
        "::warning title=DFS502 graph-changed::another model\n"
        "::notice title=DFS703 held-to-the-join::held\n"
    )
    assert render([], "github") == ""


def test_github_takes_the_file_that_a_finding_is_about() -> None:
    stale = Diagnostic("DFS501", "a.py is stale", about="a,b.dfs")
    assert render([stale], "github") == (
        "::error file=a%2Cb.dfs,title=DFS501 module-stale::a.py is stale\n"
    )


def test_sarif() -> None:
    text = render([DIAGNOSTIC, WARNING, INFO, DIAGNOSTIC], "sarif")
    assert text.endswith("}\n")
    log = json.loads(text)
    check_sarif(log)
    (run,) = log["runs"]
    assert run["tool"]["driver"]["semanticVersion"] == __version__
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["DFS101", "DFS502", "DFS703"]
    page = explanation("DFS101")
    assert page is not None
    assert rules[0] == {
        "id": "DFS101",
        "name": "reserved-name",
        "shortDescription": {"text": page.summary},
        "fullDescription": {"text": page.summary},
        "help": {"text": page.text, "markdown": page.text},
    }
    first, last = run["results"]
    assert first == last
    assert first == {
        "ruleId": "DFS101",
        "ruleIndex": 0,
        "level": "error",
        "message": {
            "text": "'order' cannot be a name here\n"
            "note: 100 % of\nthe time\n"
            "help: choose another name"
        },
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "a%20b/x%2Cy%3A1.dfs"},
                    "region": {
                        "startLine": 3,
                        "startColumn": 10,
                        "endLine": 3,
                        "endColumn": 15,
                    },
                },
                "message": {"text": "a word of the language"},
            }
        ],
        "relatedLocations": [
            {
                "id": 1,
                "physicalLocation": {
                    "artifactLocation": {"uri": "a%20b/x%2Cy%3A1.dfs"},
                    "region": {
                        "startLine": 1,
                        "startColumn": 1,
                        "endLine": 1,
                        "endColumn": 6,
                    },
                },
                "message": {"text": "edition"},
            }
        ],
    }
    # Code scanning refuses a log that has a result without a place.
    (invocation,) = run["invocations"]
    assert invocation == {
        "executionSuccessful": True,
        "toolExecutionNotifications": [
            {
                "descriptor": {"id": "DFS502", "index": 1},
                "level": "warning",
                "message": {"text": "another model"},
            },
            {
                "descriptor": {"id": "DFS703", "index": 2},
                "level": "note",
                "message": {"text": "held"},
            },
        ],
    }


def test_sarif_without_diagnostics_is_a_log() -> None:
    log = json.loads(render([], "sarif"))
    check_sarif(log)
    (run,) = log["runs"]
    assert run["results"] == []
    assert "invocations" not in run


def test_sarif_says_where_a_file_lies_that_is_named_from_the_root() -> None:
    source = Source("/models/a b.dfs", SOURCE.text)
    found = Diagnostic("DFS101", "no name", Label(Span(source, 16, 21)))
    (result,) = json.loads(render([found], "sarif"))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "file:///models/a%20b.dfs"}


def test_sarif_names_the_use_that_brought_the_text() -> None:
    place = Span(SOURCE, 16, 21, Span(SOURCE, 0, 5))
    found = Diagnostic("DFS101", "no name", Label(place))
    (result,) = json.loads(render([found], "sarif"))["runs"][0]["results"]
    (related,) = result["relatedLocations"]
    assert related["message"] == {"text": "used here"}
