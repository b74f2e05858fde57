"""The forms that services read: GitHub's workflow commands, and SARIF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynaflow_dsl import __version__
from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity, explanation, render
from dynaflow_dsl.source import Source, Span
from tests.messages.test_messages import CASE, FILES, messages

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


def test_sarif() -> None:
    text = render([DIAGNOSTIC, WARNING, INFO, DIAGNOSTIC], "sarif")
    assert text.endswith("}\n")
    log = json.loads(text)
    check_log(log)
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
        "help": {"text": page.text, "markdown": page.text},
    }
    first, second, third, last = run["results"]
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
    assert second["level"] == "warning"
    assert "locations" not in second
    assert third["level"] == "note"


def test_sarif_without_diagnostics_is_a_log() -> None:
    log = json.loads(render([], "sarif"))
    check_log(log)
    assert log["runs"][0]["results"] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_sarif_of_every_message(file: Path) -> None:
    cases = CASE.finditer(file.read_text(encoding="utf-8"))
    found = [diagnostic for case in cases for diagnostic in messages(case)]
    log = json.loads(render(found, "sarif"))
    check_log(log)
    assert len(log["runs"][0]["results"]) == len(found) > 0


def check_log(log: dict[str, Any]) -> None:
    """What SARIF 2.1.0 requires of the objects used here, and nothing beside them."""
    only(log, required={"version", "runs"}, optional={"$schema"})
    assert log["version"] == "2.1.0"
    for run in log["runs"]:
        only(run, required={"tool"}, optional={"columnKind", "results"})
        assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        only(run["tool"], required={"driver"})
        driver = run["tool"]["driver"]
        only(driver, required={"name"}, optional={"semanticVersion", "rules"})
        identifiers = [rule["id"] for rule in driver["rules"]]
        assert len(identifiers) == len(set(identifiers))
        for rule in driver["rules"]:
            optional = {"name", "shortDescription", "help"}
            only(rule, required={"id"}, optional=optional)
            only(rule["shortDescription"], required={"text"})
            only(rule["help"], required={"text"}, optional={"markdown"})
        for result in run["results"]:
            check_result(result, identifiers)


def check_result(result: dict[str, Any], rules: list[str]) -> None:
    optional = {"ruleId", "ruleIndex", "level", "locations", "relatedLocations"}
    only(result, required={"message"}, optional=optional)
    only(result["message"], required={"text"})
    assert rules[result["ruleIndex"]] == result["ruleId"]
    assert result["level"] in ("none", "note", "warning", "error")
    related = result.get("relatedLocations", [])
    for location in [*result.get("locations", []), *related]:
        only(location, optional={"id", "physicalLocation", "message"})
        physical = location["physicalLocation"]
        only(physical, required={"artifactLocation", "region"})
        only(physical["artifactLocation"], required={"uri"})
        assert not physical["artifactLocation"]["uri"].startswith(("/", "file:"))
        region = physical["region"]
        only(region, required={"startLine", "startColumn", "endLine", "endColumn"})
        assert all(isinstance(n, int) and n >= 1 for n in region.values())
        assert (region["startLine"], region["startColumn"]) <= (
            region["endLine"],
            region["endColumn"],
        )


def only(
    value: dict[str, Any],
    required: frozenset[str] | set[str] = frozenset(),
    optional: frozenset[str] | set[str] = frozenset(),
) -> None:
    assert required <= value.keys() <= required | optional
