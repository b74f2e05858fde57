import hashlib
import json

import pytest

from dynaflow_dsl.cli.main import run
from tests.cli.conftest import Workspace

Capture = pytest.CaptureFixture[str]


def test_module_and_map_are_written_and_named(
    workspace: Workspace, capsys: Capture
) -> None:
    assert workspace.compile() == 0
    assert capsys.readouterr().out == "executors/stack_halves.py\n"
    known = json.loads(workspace.map.read_text())
    assert known["source"] == "stack.dfs"
    assert known["target"] == {"name": "targets.py:stack", "arguments": {"layers": 3}}
    digest = hashlib.sha256(workspace.module.read_bytes()).hexdigest()
    assert known["body"] == digest


def test_compiling_again_changes_nothing(workspace: Workspace) -> None:
    assert workspace.compile() == 0
    first = workspace.files()
    assert run(["compile", str(workspace.schedule)]) == 0
    assert workspace.files() == first


def test_another_folder(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile("-o", "made/here") == 0
    assert capsys.readouterr().out == "made/here/stack_halves.py\n"
    assert not workspace.module.exists()


def test_json_names_both_files(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile("--output-format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["results"] == [
        {
            "module": "executors/stack_halves.py",
            "map": "executors/stack_halves.map.json",
        }
    ]


def test_an_error_leaves_the_old_module(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    old = workspace.module.read_text()
    workspace.misspell()
    assert workspace.compile() == 1
    assert "stack.dfs:" in capsys.readouterr().err
    assert workspace.module.read_text() == old


def test_fresh_module_passes_the_check(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    before = workspace.files()
    capsys.readouterr()
    assert workspace.compile("--check") == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "executors/stack_halves.py: up to date\n"
    assert workspace.files() == before


def check(workspace: Workspace, capsys: Capture, *words: str) -> list[str]:
    """The codes that `compile --check` finds; it must write nothing."""
    before = workspace.files()
    capsys.readouterr()
    code = workspace.compile("--check", "--output-format", "json", *words)
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert code == (1 if found else 0)
    assert workspace.files() == before
    return [item["code"] for item in found]


def test_check_without_a_module(workspace: Workspace, capsys: Capture) -> None:
    assert check(workspace, capsys) == ["DFS501"]


def test_check_after_the_schedule_changed(
    workspace: Workspace, capsys: Capture
) -> None:
    assert workspace.compile() == 0
    workspace.change(workspace.schedule, ".norm + .up", ".norm")
    assert check(workspace, capsys) == ["DFS501"]


def test_check_after_the_model_changed(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    workspace.change(workspace.targets, "torch.relu", "torch.sigmoid")
    capsys.readouterr()
    assert workspace.compile("--check") == 1
    shown = capsys.readouterr().err
    assert "error[DFS502]" in shown
    assert "first in function" in shown
    assert "sigmoid" in shown
    assert "help: run `dfsc compile stack.dfs`" in shown


def test_check_after_an_edit_by_hand(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    workspace.change(workspace.module, "side.wait(", "main.wait(")
    assert check(workspace, capsys) == ["DFS504"]


def test_repair_repeats_the_options(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile("--check", "-M", "layers=2", "-o", "made") == 1
    repair = "help: run `dfsc compile stack.dfs -M layers=2 -o made`"
    assert repair in capsys.readouterr().err


def test_check_takes_the_model_that_the_module_was_made_with(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(workspace.schedule, 'model "targets.py:stack" (layers = 3)\n', "")
    words = ("--model", "targets.py:stack", "-M", "layers=2")
    assert workspace.compile(*words) == 0
    assert check(workspace, capsys) == []


def test_arguments_of_the_model_are_remembered(
    workspace: Workspace, capsys: Capture
) -> None:
    """Those of `-M`, as what `-P` and `-F` say: of what the file's line does not."""
    assert workspace.compile("-M", "layers=2") == 0
    assert check(workspace, capsys) == []
    assert run(["verify", str(workspace.schedule), "--text-only", "--batch", "4"]) == 0
    workspace.change(workspace.schedule, ".norm + .up", ".norm")
    capsys.readouterr()
    assert workspace.compile("--check") == 1
    repair = "help: run `dfsc compile stack.dfs -M layers=2`\n"
    assert repair in capsys.readouterr().err
    assert workspace.compile("--check", "-M", "layers=3") == 1
    assert "help: run `dfsc compile stack.dfs -M layers=3`\n" in capsys.readouterr().err
    # A command that writes is given everything anew.
    assert workspace.compile() == 0
    assert check(workspace, capsys) == []
    assert "layers=2" not in workspace.module.with_suffix(".map.json").read_text()


def test_arguments_of_another_target_are_forgotten(
    workspace: Workspace, capsys: Capture
) -> None:
    assert workspace.compile("-M", "layers=2") == 0
    text = workspace.targets.read_text()
    workspace.targets.with_name("others.py").write_text(text)
    workspace.change(workspace.schedule, "targets.py:stack", "others.py:stack")
    capsys.readouterr()
    assert workspace.compile("--check") == 1
    assert "help: run `dfsc compile stack.dfs`\n" in capsys.readouterr().err


def test_an_argument_that_the_target_has_no_more(
    workspace: Workspace, capsys: Capture
) -> None:
    assert workspace.compile("-M", "layers=2") == 0
    text = workspace.targets.read_text()
    workspace.targets.write_text(text.replace("layers", "blocks"))
    workspace.change(workspace.schedule, " (layers = 3)", "")
    capsys.readouterr()
    assert workspace.compile("--check") == 2
    shown = capsys.readouterr().err
    assert "error[DFS110]" in shown
    said = "the module on disk was made with -M layers=2, and `dfsc compile` forgets it"
    assert said in shown


def test_arguments_and_no_model(workspace: Workspace, capsys: Capture) -> None:
    workspace.change(workspace.schedule, 'model "targets.py:stack" (layers = 3)\n', "")
    assert workspace.compile("-M", "layers=2") == 2
    shown = capsys.readouterr().err
    assert "error[DFS110]" in shown
    assert "note: -M layers=2 is an argument of a model" in shown


def test_diff_shows_what_would_change(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    workspace.change(workspace.schedule, "Two halves", "Both halves")
    before = workspace.files()
    capsys.readouterr()
    assert workspace.compile("--diff") == 1
    shown = capsys.readouterr().out
    assert "--- executors/stack_halves.py" in shown
    assert '-"""Two halves, one stage apart."""' in shown
    assert '+"""Both halves, one stage apart."""' in shown
    assert workspace.files() == before


def test_diff_of_a_fresh_module_is_empty(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    capsys.readouterr()
    assert workspace.compile("--diff") == 0
    assert capsys.readouterr().out == ""


def test_overwriting_an_edit_is_said(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    text = workspace.module.read_text()
    workspace.change(workspace.module, "side.wait(", "main.wait(")
    assert workspace.compile() == 0
    assert "warning[DFS504]" in capsys.readouterr().err
    assert workspace.module.read_text() == text


def test_without_a_map_it_is_said_that_there_may_have_been_an_edit(
    workspace: Workspace, capsys: Capture
) -> None:
    assert workspace.compile() == 0
    text = workspace.module.read_text()
    workspace.module.with_suffix(".map.json").unlink()
    assert workspace.compile() == 0
    assert "DFS504" not in capsys.readouterr().err
    workspace.module.with_suffix(".map.json").unlink()
    workspace.change(workspace.module, "side.wait(", "main.wait(")
    assert workspace.compile() == 0
    assert "had no map that could be read; an edit by hand" in capsys.readouterr().err
    assert workspace.module.read_text() == text


def test_other_files_are_not_overwritten(workspace: Workspace, capsys: Capture) -> None:
    workspace.module.parent.mkdir()
    workspace.module.write_text("mine = 1\n")
    assert workspace.compile() == 2
    assert "there is a file that is not a generated module" in capsys.readouterr().err
    assert workspace.module.read_text() == "mine = 1\n"


def test_a_file_where_a_map_belongs_is_not_overwritten(
    workspace: Workspace, capsys: Capture
) -> None:
    place = workspace.module.with_suffix(".map.json")
    place.parent.mkdir()
    place.write_text('{"mine": 1}')
    assert workspace.compile() == 2
    assert "is not the map of a generated module" in capsys.readouterr().err
    assert place.read_text() == '{"mine": 1}'
    assert not workspace.module.exists()


def test_two_files_may_not_make_one_module(
    workspace: Workspace, capsys: Capture
) -> None:
    (workspace.folder / "other.dfs").write_text(workspace.schedule.read_text())
    before = workspace.files()
    assert run(["compile", "."]) == 1
    shown = capsys.readouterr().err
    assert "other.dfs and stack.dfs both make executors/stack_halves.py" in shown
    assert "--> stack.dfs:6:10" in shown
    assert "::: other.dfs:6:10" in shown
    assert workspace.files() == before


def test_a_file_without_model_needs_one(workspace: Workspace, capsys: Capture) -> None:
    workspace.change(workspace.schedule, 'model "targets.py:stack" (layers = 3)\n', "")
    assert workspace.compile() == 2
    assert "stack.dfs names no model" in capsys.readouterr().err


@pytest.mark.parametrize(
    "target", ["nowhere.py:stack", "targets.py:nothing", "no_such_package.x:stack"]
)
def test_a_model_that_cannot_be_loaded_could_not_run(
    target: str, workspace: Workspace, capsys: Capture
) -> None:
    assert workspace.compile("--model", target) == 2
    shown = capsys.readouterr().err
    assert "error[DFS" in shown
    assert "DFS900" not in shown
    assert not workspace.module.exists()


def test_a_file_that_cannot_be_read_could_not_run(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["compile", "missing.dfs"]) == 2
    assert "missing.dfs" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["class", "None", "json", "torch", "dynaflow_dsl"])
def test_a_module_must_not_hide_another(
    name: str, workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(workspace.schedule, "schedule stack_halves", f"schedule {name}")
    before = workspace.files()
    assert workspace.compile() == 1
    shown = capsys.readouterr().err
    assert f"error[DFS101]: the module would be called '{name}'" in shown
    assert "rename the schedule" in shown
    assert workspace.files() == before


def test_a_file_of_several_schedules_must_not_hide_a_module(
    workspace: Workspace, capsys: Capture
) -> None:
    text = workspace.schedule.read_text()
    second = text.partition("schedule stack_halves")[2]
    (workspace.folder / "json.dfs").write_text(f"{text}\nschedule other{second}")
    assert run(["compile", "json.dfs"]) == 1
    shown = capsys.readouterr().err
    assert "the module would be called 'json'" in shown
    assert "rename the file" in shown


def test_diff_finds_the_stored_target_as_check_does(
    workspace: Workspace, capsys: Capture
) -> None:
    line = 'model "targets.py:stack" (layers = 3)\n'
    workspace.change(workspace.schedule, line, "")
    assert workspace.compile("--model", "targets.py:stack") == 0
    assert workspace.compile("--check") == 0
    assert workspace.compile("--diff") == 0


@pytest.mark.parametrize("text", ["", "print('mine')\n"])
def test_check_does_not_recommend_what_compile_refuses(
    text: str, workspace: Workspace, capsys: Capture
) -> None:
    workspace.module.parent.mkdir()
    workspace.module.write_text(text)
    assert workspace.compile("--check") == 1
    shown = capsys.readouterr().err
    assert "executors/stack_halves.py is not a generated module" in shown
    assert "run `" not in shown
    assert workspace.compile() == 2
    assert workspace.module.read_text() == text
