import json

import pytest

from dynaflow_dsl.cli.main import run
from dynaflow_dsl.cli.verify import json_data
from tests.cli.conftest import Workspace

Capture = pytest.CaptureFixture[str]
VERIFY = ("verify", "stack.dfs", "--text-only", "--batch", "2", "--batch", "5")


def test_a_fresh_module_equals_its_model(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    before = workspace.files()
    capsys.readouterr()
    assert run(VERIFY) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out.startswith("stack_halves.py, entry forward: ok\n")
    for batch in (2, 5):
        assert f"  batch {batch}: text against reference: equal bit for bit" in (
            output.out
        )
        assert f"  batch {batch}: text against model: equal within" in output.out
    assert "unordered: expand[1] | reduce[0]" in output.out
    assert workspace.files() == before


def test_without_a_module_a_new_one_is_run(
    workspace: Workspace, capsys: Capture
) -> None:
    before = workspace.files()
    assert run(VERIFY) == 0
    output = capsys.readouterr()
    assert "there is no executors/stack_halves.py" in output.err
    assert "entry forward: ok" in output.out
    assert workspace.files() == before


def test_compiled_parts_are_compared_too(workspace: Workspace, capsys: Capture) -> None:
    assert run(["verify", "stack.dfs", "--batch", "2"]) == 0
    assert "batch 2: compiled against model: equal within" in capsys.readouterr().out


def test_a_wait_that_was_taken_out_is_found(
    workspace: Workspace, capsys: Capture
) -> None:
    assert workspace.compile() == 0
    text = workspace.module.read_text()
    lines = [line for line in text.splitlines() if ".wait(" in line]
    workspace.module.write_text(text.replace(lines[1], ""))
    assert run(VERIFY) == 1
    output = capsys.readouterr()
    assert "error[DFS504]" in output.err
    assert "entry forward: FAILED" in output.out
    assert "read before write" in output.out


def test_another_result_is_found(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    workspace.change(workspace.module, "aten.relu.default(", "aten.sigmoid.default(")
    capsys.readouterr()
    assert run([*VERIFY, "--output-format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (report,) = document["results"]
    differing = [item for item in report["comparisons"] if item["difference"]]
    assert len(differing) == 4


def test_a_stale_module_is_not_run(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    workspace.change(workspace.targets, "torch.relu", "torch.sigmoid")
    capsys.readouterr()
    assert run(VERIFY) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "error[DFS502]" in output.err
    assert "help: run `dfsc compile stack.dfs`" in output.err


def test_a_device_without_streams_could_not_run(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run([*VERIFY, "--device", "meta"]) == 2
    shown = capsys.readouterr().err
    assert "error[DFS8" in shown
    assert "meta" in shown


def test_sizes_must_be_allowed(workspace: Workspace, capsys: Capture) -> None:
    assert run(["verify", "stack.dfs", "--batch", "0"]) == 2
    assert run(["verify", "stack.dfs", "--batch", "65"]) == 2
    assert "batch goes from 1 to 64" in capsys.readouterr().err


def test_json_has_null_for_what_is_not_finite() -> None:
    assert json_data({"a": [float("inf"), 1.5], "b": (None, "x")}) == {
        "a": [None, 1.5],
        "b": [None, "x"],
    }
