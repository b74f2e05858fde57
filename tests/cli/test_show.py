import json

import pytest

from dynaflow_dsl.cli.main import run
from tests.cli.conftest import Workspace

Capture = pytest.CaptureFixture[str]


def test_windows_are_the_default(workspace: Workspace, capsys: Capture) -> None:
    assert run(["show", "stack.dfs"]) == 0
    default = capsys.readouterr().out
    assert run(["show", "--windows", "stack.dfs"]) == 0
    assert capsys.readouterr().out == default
    assert "    expand[0] | prev.reduce[1]\n" in default
    assert "layer 1 and every later one:" in default


def test_the_number_of_layers_comes_from_the_snapshot(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    capsys.readouterr()
    assert run(["show", "stack.dfs"]) == 0
    assert "layer 1 to 2:" in capsys.readouterr().out


def test_gantt_fits_the_terminal(
    workspace: Workspace, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["show", "--gantt", "stack.dfs"]) == 0
    chart = capsys.readouterr().out
    assert "side|expand[0] 0|expand[1] 0|" in chart
    assert max(map(len, chart.splitlines())) <= 60


def test_two_views_are_refused(workspace: Workspace, capsys: Capture) -> None:
    assert run(["show", "--gantt", "--parts", "stack.dfs"]) == 2
    shown = capsys.readouterr()
    assert "--gantt and --parts are different views" in shown.err
    assert shown.out == ""


def test_parts_list_operations_by_module(workspace: Workspace, capsys: Capture) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    capsys.readouterr()
    assert run(["show", "--parts", "stack.dfs"]) == 0
    shown = capsys.readouterr().out
    assert "stack_halves, entry forward" in shown
    assert "expand: layer 0 to 2, on side" in shown
    assert "    .up\n" in shown
    assert "targets.py" in shown
    assert "    +   add" in shown


def test_parts_need_a_snapshot(workspace: Workspace, capsys: Capture) -> None:
    assert run(["show", "--parts", "stack.dfs"]) == 2
    assert "dfsc trace stack.dfs" in capsys.readouterr().err


def test_windows_are_shown_beside_what_binding_finds(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    workspace.change(workspace.schedule, ".norm + .up", ".norm + .upward")
    capsys.readouterr()
    assert run(["show", "stack.dfs"]) == 1
    output = capsys.readouterr()
    assert "DFS201" in output.err
    assert "layer 0:" in output.out


def test_json_has_streams_and_windows(workspace: Workspace, capsys: Capture) -> None:
    assert run(["show", "stack.dfs", "--output-format", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["results"]
    assert shown["streams"] == ["main", "side"]
    assert [block["block"] for block in shown["sections"][0]["blocks"]] == [
        "first",
        "loop",
        "last",
    ]
    assert shown["sections"][0]["blocks"][1]["windows"][0][1] == {
        "stream": "main",
        "steps": [{"part": "reduce", "piece": 1, "previous": True, "after": []}],
    }


def test_a_file_with_errors_shows_nothing(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.misspell()
    assert run(["show", "stack.dfs"]) == 1
    assert capsys.readouterr().out == ""
