import json

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
    assert run(["trace", "stack.dfs", "--check"]) == 0
    workspace.change(
        workspace.targets, "super().__init__()", "nn.Module.__init__(self)"
    )
    assert run(["trace", "stack.dfs", "--check"]) == 1
    shown = capsys.readouterr().err
    assert "error[DFS501]: stack.graph.json is stale: it has another fingerprint" in (
        shown
    )


def test_lines_of_the_model_that_moved_are_no_other_graph(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    assert run(["compile", "stack.dfs"]) == 0
    workspace.change(workspace.targets, "# Model", "# More.\n# Model")
    for command in ("trace", "compile"):
        assert run([command, "stack.dfs", "--check"]) == 1
        shown = capsys.readouterr().err
        assert "error[DFS501]" in shown
        assert "lines of the model's code that it" in shown
        assert "changed" in shown


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


@pytest.mark.parametrize("name", ["targets.py", "stack.dfs", "package.json"])
def test_only_snapshots_are_overwritten(
    name: str, workspace: Workspace, capsys: Capture
) -> None:
    (workspace.folder / "package.json").write_text('{"name": "mine"}\n')
    before = workspace.files()
    for option in ([], ["--check"]):
        assert run(["trace", "stack.dfs", "-o", name, *option]) == 2
        shown = capsys.readouterr().err
        assert name in shown
        assert "it is not a snapshot" in shown
    assert workspace.files() == before


@pytest.mark.parametrize("text", ['{"graphs": 1, "format": 9}', '{\n "format": 1,\n<<'])
def test_damaged_and_later_snapshots_are_overwritten(
    text: str, workspace: Workspace
) -> None:
    (workspace.folder / "stack.graph.json").write_text(text)
    assert run(["trace", "stack.dfs"]) == 0
    assert run(["trace", "stack.dfs", "--check"]) == 0


def test_what_the_model_prints_is_no_result(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(workspace.targets, "torch.manual_seed(0)", "print('loading')")
    workspace.change(
        workspace.targets, "return self.head", "print('x'); return self.head"
    )
    assert run(["trace", "stack.dfs", "--output-format", "json"]) == 0
    output = capsys.readouterr()
    (result,) = json.loads(output.out)["results"]
    assert result["snapshot"] == "stack.graph.json"
    assert output.err.startswith("loading\nx\n")


def test_an_absolute_target_is_stored_as_seen_from_its_project(
    workspace: Workspace, capsys: Capture
) -> None:
    (workspace.folder / "pyproject.toml").write_text("")
    inner = workspace.folder / "model"
    inner.mkdir()
    workspace.targets.rename(inner / "targets.py")
    absolute = (inner / "targets.py").as_posix()
    workspace.change(workspace.schedule, "targets.py:stack", f"{absolute}:stack")
    assert run(["trace", "stack.dfs"]) == 0
    assert workspace.compile() == 0
    snapshot = workspace.files()["stack.graph.json"]
    assert '"target": "model/targets.py:stack"' in snapshot
    assert workspace.folder.as_posix() not in snapshot + workspace.map.read_text()
    capsys.readouterr()
    assert run(["check", "stack.dfs"]) == 0
    assert "another model" not in capsys.readouterr().err
    workspace.change(workspace.schedule, f'model "{absolute}:stack" (layers = 3)', "")
    assert workspace.compile("--check") == 1
    assert "stack.dfs changed" in capsys.readouterr().err
