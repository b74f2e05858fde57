import json

import pytest

from dynaflow_dsl.cli.main import run
from tests.cli.conftest import Workspace

Capture = pytest.CaptureFixture[str]


def test_why_a_step_waits(workspace: Workspace, capsys: Capture) -> None:
    assert run(["why", "stack.dfs", "reduce[1]"]) == 2
    assert "dfsc trace stack.dfs" in capsys.readouterr().err
    assert run(["trace", "stack.dfs"]) == 0
    capsys.readouterr()
    assert run(["why", "stack.dfs", "reduce[1]"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("stack_halves, entry forward\n\n")
    assert "waits for expand[1] on side · stack.dfs:" in shown
    assert run(["why", "stack.dfs", "reduce", "--output-format", "json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert {r["step"] for r in result["runs"]} >= {"reduce[0]", "prev.reduce[1]"}
    assert run(["why", "stack.dfs", "reduse"]) == 2
    assert "has no step 'reduse'; there are: reduce[" in capsys.readouterr().err
