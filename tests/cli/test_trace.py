import pytest

from dynaflow_dsl.cli.main import run
from tests.cli.conftest import Workspace

Capture = pytest.CaptureFixture[str]


def test_a_schedule_file_names_target_and_place(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    assert capsys.readouterr().out == "stack.graph.json\n"
    assert (workspace.folder / "stack.graph.json").read_text().endswith("}\n")


def test_a_target_needs_a_place(workspace: Workspace, capsys: Capture) -> None:
    assert run(["trace", "targets.py:stack"]) == 2
    assert "-o" in capsys.readouterr().err
    assert run(["trace", "targets.py:stack", "-M", "layers=3", "-o", "g.json"]) == 0
    assert run(["trace", "stack.dfs"]) == 0
    files = workspace.files()
    assert files["g.json"] == files["stack.graph.json"]


def test_check_of_a_fresh_snapshot(workspace: Workspace, capsys: Capture) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    before = workspace.files()
    assert run(["trace", "stack.dfs", "--check"]) == 0
    assert workspace.files() == before


@pytest.mark.parametrize(("made", "code"), [(False, "DFS501"), (True, "DFS502")])
def test_check_finds_missing_and_stale(
    made: bool, code: str, workspace: Workspace, capsys: Capture
) -> None:
    if made:
        assert run(["trace", "stack.dfs"]) == 0
        workspace.change(workspace.targets, "torch.relu", "torch.sigmoid")
    before = workspace.files()
    assert run(["trace", "stack.dfs", "--check"]) == 1
    shown = capsys.readouterr().err
    assert f"error[{code}]: stack.graph.json is " in shown
    assert "help: run `dfsc trace stack.dfs`" in shown
    assert workspace.files() == before


def test_other_versions_are_no_other_graph(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    workspace.change(workspace.targets, "# Model", "# A model")
    assert run(["trace", "stack.dfs", "--check"]) == 1
    shown = capsys.readouterr().err
    assert "error[DFS501]: stack.graph.json is stale: it has another fingerprint" in (
        shown
    )


@pytest.mark.parametrize("text", ["", "{}"])
def test_a_broken_snapshot_is_written_again(
    text: str, workspace: Workspace, capsys: Capture
) -> None:
    (workspace.folder / "stack.graph.json").write_text(text)
    assert run(["trace", "stack.dfs", "--check"]) == 1
    assert "stack.graph.json cannot be read" in capsys.readouterr().err
    assert run(["trace", "stack.dfs"]) == 0
    assert run(["trace", "stack.dfs", "--check"]) == 0


def test_a_schedule_without_model_line(workspace: Workspace, capsys: Capture) -> None:
    workspace.change(workspace.schedule, 'model "targets.py:stack" (layers = 3)\n', "")
    assert run(["trace", "stack.dfs"]) == 2
    assert "names no model" in capsys.readouterr().err


def test_a_target_that_raises_is_shown_with_its_reason(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(workspace.targets, "torch.manual_seed(0)", "raise OSError('gone')")
    assert run(["trace", "stack.dfs"]) == 2
    shown = capsys.readouterr().err
    assert "gone" in shown
    assert "DFS900" not in shown
