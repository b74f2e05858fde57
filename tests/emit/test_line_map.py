"""The map beside a module: which line issues which step, and which operation."""

from __future__ import annotations

import ast
import json
import re

import pytest

from tests.prove.schedules import Scheduled, schedules

SCHEDULES = schedules()


def calls(text: str) -> dict[int, tuple[int, str]]:
    """Calls of parts with an iteration, by first line: last line and attribute."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Assign | ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and ast.unparse(node.value.func.value) == "self"
        ):
            found[node.lineno] = (node.end_lineno or 0, node.value.func.attr)
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_call_has_its_step_and_its_line_of_the_file(name: str) -> None:
    schedule = SCHEDULES[name]
    lines = json.loads(schedule.map())["lines"]
    source = schedule.file.schedules[0].span.source.text.split("\n")
    expected = calls(schedule.text())
    assert {entry["first"]: entry["last"] for entry in lines} == {
        first: last for first, (last, _) in expected.items()
    }
    for entry in lines:
        part = re.sub(r"^prev\.|\[\d+\]$", "", entry["label"])
        assert expected[entry["first"]][1].removesuffix("_into") == part
        line = source[entry["line"] - 1]
        assert line[entry["column"] - 1 :].startswith(entry["text"])
        if part not in ("before", "after"):
            assert part in entry["text"]


def test_labels_and_layers_say_which_iteration() -> None:
    schedule = SCHEDULES["halves"]
    step = json.loads(schedule.map())["lines"][:8]
    assert [(entry["label"], entry["layer"]) for entry in step] == [
        ("before", "0"),
        ("attn[0]", "0"),
        ("mlp[0]", "0"),
        ("attn[1]", "0"),
        ("attn[0]", "i"),
        ("prev.mlp[1]", "i - 1"),
        ("mlp[0]", "i"),
        ("attn[1]", "i"),
    ]


@pytest.mark.parametrize("name", ["halves", "no split"])
def test_every_operation_has_its_line(name: str) -> None:
    schedule: Scheduled = SCHEDULES[name]
    text = schedule.text().split("\n")
    graph = schedule.model.graphs[0]
    by_name = {operation.name: operation for operation in graph.operations}
    entries = json.loads(schedule.map())["operations"]
    assert len({entry["operation"] for entry in entries}) == len(entries)
    for entry in entries:
        assert by_name[entry["operation"]].operator + "(" in text[entry["line"] - 1]
        assert entry["module"] == by_name[entry["operation"]].module
    tree = ast.parse("\n".join(text))
    written = sum(
        ast.unparse(node.func).startswith("aten.")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    )
    # Copies into tensors that the step makes are no operations of the model.
    copies = text.count("    aten.copy_.default(out, result)")
    assert copies == (name == "halves")
    assert written == len(entries) + copies
