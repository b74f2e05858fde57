import json

import pytest

from dynaflow_dsl.cli.main import run
from tests.cli.conftest import Workspace

Capture = pytest.CaptureFixture[str]


def test_without_snapshot_text_and_names_are_checked(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["check", "stack.dfs"]) == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert "stack.dfs: text and names are fine" in output.err
    assert "dfsc trace stack.dfs" in output.err


def test_findings_set_the_exit_code(workspace: Workspace, capsys: Capture) -> None:
    workspace.misspell()
    assert run(["check", "stack.dfs"]) == 1
    assert "reducer" in capsys.readouterr().err


def test_every_file_of_a_folder_is_checked(
    workspace: Workspace, capsys: Capture
) -> None:
    (workspace.folder / "broken.dfs").write_text("dfs 1\nschedul x:\n")
    assert run(["check", "."]) == 1
    shown = capsys.readouterr().err
    assert "broken.dfs:2:1" in shown
    assert "stack.dfs: text and names are fine" in shown


def test_with_snapshot_selectors_are_checked(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    assert run(["check", "stack.dfs"]) == 0
    assert "stack.dfs: fine, with stack.graph.json" in capsys.readouterr().err
    workspace.change(workspace.schedule, ".norm + .up", ".norm + .upward")
    assert run(["check", "stack.dfs"]) == 1
    assert "error[DFS201]" in capsys.readouterr().err


def test_a_named_snapshot_must_exist(workspace: Workspace, capsys: Capture) -> None:
    assert run(["check", "stack.dfs", "--graph", "other.json"]) == 2
    assert "other.json" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 99}'])
def test_a_broken_snapshot_is_a_finding(
    text: str, workspace: Workspace, capsys: Capture
) -> None:
    (workspace.folder / "stack.graph.json").write_text(text)
    assert run(["check", "stack.dfs"]) == 1
    shown = capsys.readouterr().err
    assert "stack.graph.json" in shown
    assert "DFS900" not in shown


def test_a_snapshot_of_another_model_is_a_warning(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["trace", "stack.dfs", "-M", "layers=2"]) == 0
    capsys.readouterr()
    assert run(["check", "stack.dfs"]) == 0
    shown = capsys.readouterr().err
    assert "warning[DFS502]: stack.graph.json is a snapshot of another model" in shown
    assert "targets.py:stack layers=2" in shown


def test_json_lists_findings_with_places(workspace: Workspace, capsys: Capture) -> None:
    workspace.misspell()
    assert run(["check", "stack.dfs", "--output-format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert all(item["primary"]["file"] == "stack.dfs" for item in found)
    assert any("reducer" in item["message"] for item in found)


def test_a_missing_file_could_not_run(workspace: Workspace, capsys: Capture) -> None:
    assert run(["check", "missing.dfs"]) == 2
    assert "missing.dfs" in capsys.readouterr().err


def test_what_has_no_effect_is_no_news_beside_an_error(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    workspace.change(
        workspace.schedule, "    split", "    capture bach at [64]\n    split"
    )
    capsys.readouterr()
    assert run(["check", "stack.dfs"]) == 1
    shown = capsys.readouterr().err
    assert "no dimension named bach" in shown
    assert "DFS704" not in shown
    workspace.change(workspace.schedule, "bach", "batch")
    assert run(["check", "stack.dfs"]) == 0
    assert "DFS704" in capsys.readouterr().err
