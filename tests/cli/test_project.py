"""`[tool.dfsc]`: found from below, and used by every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run
from dynaflow_dsl.cli.project import find_project, read_project
from dynaflow_dsl.diagnostics import DiagnosticError
from tests.cli.conftest import SCHEDULE, Workspace

Capture = pytest.CaptureFixture[str]

SETTINGS = """\
[tool.dfsc]
schedules = ["schedules"]
output = "made"

[tool.dfsc.files."schedules/stack.dfs"]
arguments = { layers = 2 }
parameters = { ways = 3 }
facts = { width = 4 }
"""


@pytest.fixture
def project(workspace: Workspace) -> Workspace:
    text = SCHEDULE.replace("stack_halves:", "stack_halves(ways = 2):")
    text = text.replace("into 2", "into ways").replace("half by 1", "half by 0")
    text = text.replace("    stream", "    require width < 8\n    stream", 1)
    workspace.schedule.unlink()
    (workspace.folder / "schedules").mkdir()
    (workspace.folder / "schedules" / "stack.dfs").write_text(text)
    (workspace.folder / "pyproject.toml").write_text(SETTINGS)
    return workspace


def stored(project: Workspace) -> dict[str, object]:
    path = project.folder / "made" / "stack_halves.map.json"
    known: dict[str, object] = json.loads(path.read_text())
    return known


def test_compile_takes_everything_from_the_project(project: Workspace) -> None:
    assert run(["compile"]) == 0
    known = stored(project)
    assert known["target"] == {"name": "targets.py:stack", "arguments": {"layers": 2}}
    assert known["parameters"] == {"stack_halves": {"ways": 3}}
    assert known["facts"] == {"width": 4}
    assert run(["compile", "--check"]) == 0
    assert run(["verify", "--text-only", "--batch", "3"]) == 0


def test_the_command_line_goes_before_the_project(
    project: Workspace, capsys: Capture
) -> None:
    assert run(["compile", "-P", "ways=4", "-o", "other"]) == 0
    assert not (project.folder / "made").exists()
    capsys.readouterr()
    words = ["-P", "ways=2", "-M", "layers=3", "-o", "other"]
    assert run(["compile", "--check", *words]) == 1
    # What the project says anyway is not repeated.
    assert (
        "help: run `dfsc compile schedules/stack.dfs -M layers=3 -P ways=2 -o other`"
        in capsys.readouterr().err
    )


def test_the_stored_values_go_below_those_of_the_project(
    project: Workspace, capsys: Capture
) -> None:
    assert run(["compile", "-P", "ways=4"]) == 0
    capsys.readouterr()
    assert run(["compile", "--check"]) == 1
    shown = capsys.readouterr().err
    assert "made/stack_halves.py is stale" in shown
    assert "help: run `dfsc compile schedules/stack.dfs`\n" in shown
    assert run(["compile", "schedules/stack.dfs"]) == 0
    assert run(["compile", "--check"]) == 0


@pytest.mark.parametrize("below", ["schedules", "deep/er"])
def test_commands_work_from_a_folder_below(
    below: str,
    project: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    (project.folder / below).mkdir(parents=True, exist_ok=True)
    assert run(["compile"]) == 0
    first = stored(project)
    monkeypatch.chdir(project.folder / below)
    assert run(["fmt", "--check"]) == 0
    assert run(["check"]) == 0
    assert run(["compile", "--check"]) == 0
    assert run(["compile"]) == 0
    assert stored(project) == first
    up = "../" * (below.count("/") + 1)
    assert f"{up}made/stack_halves.py\n" in capsys.readouterr().out


def test_facts_and_parameters_reach_check_and_show(
    project: Workspace, capsys: Capture
) -> None:
    schedule = "schedules/stack.dfs"
    assert run(["show", schedule]) == 0
    assert "expand[2]" in capsys.readouterr().out
    assert run(["check", "-F", "width=9"]) == 1
    assert run(["show", schedule, "-F", "width=9"]) == 1
    assert capsys.readouterr().err.count("error[DFS115]") == 1 + 1
    settings = SETTINGS.replace("width = 4", "width = 9")
    (project.folder / "pyproject.toml").write_text(settings)
    assert run(["show", schedule]) == 1
    assert "error[DFS115]" in capsys.readouterr().err


def test_the_output_format_of_the_project_yields_to_the_command_line(
    project: Workspace, capsys: Capture
) -> None:
    text = SETTINGS.replace("output =", 'output-format = "concise"\noutput =')
    (project.folder / "pyproject.toml").write_text(text)
    words = ["check", "-F", "width=9"]
    assert run(words) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert run([*words, "--output-format", "full"]) == 1
    assert len(capsys.readouterr().err.splitlines()) > 1


def test_the_nearest_settings_count_within_the_repository(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b" / "c"
    below.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.dfsc]\noutput = "one"\n')
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.dfsc]\noutput = "two"\n')
    # A package of its own that says nothing of dfsc.
    (tmp_path / "a" / "b" / "pyproject.toml").write_text("[project]\n")
    assert find_project(below).output == tmp_path / "a" / "two"
    (tmp_path / "a" / "b" / ".git").mkdir()
    assert find_project(below).output is None


@pytest.mark.parametrize(
    "text", ["", "[tool.ruff]\n", "tool = 3\n", "[tool]\ndfs = 1\n"]
)
def test_a_file_that_says_nothing_of_dfsc(text: str, tmp_path: Path) -> None:
    assert read_project(text, tmp_path) is None


@pytest.mark.parametrize(
    ("text", "line", "marked"),
    [
        ("[tool.dfsc]\n\noutptu = 1\n", 3, "outptu"),
        ("tool.dfsc.outptu = 1\n", 1, "outptu"),
        ("tool = { dfsc = { outptu = 1 } }\n", 1, "outptu"),
        ("[tool]\ndfsc = 3\n", 2, "dfsc"),
        ("[other]\noutptu = 1\n[tool.dfsc]\noutptu = 2\n", 4, "outptu"),
        ('[tool.dfsc]\n"outptu" = 1\n', 2, "outptu"),
    ],
)
def test_the_place_of_a_mistake_however_it_is_written(
    text: str, line: int, marked: str, tmp_path: Path
) -> None:
    with pytest.raises(DiagnosticError) as raised:
        read_project(text, tmp_path)
    (found,) = raised.value.diagnostics
    assert found.primary is not None
    assert (found.primary.span.line, found.primary.span.text) == (line, marked)


def test_the_folders_of_an_environment_are_not_schedules(
    workspace: Workspace, capsys: Capture
) -> None:
    for name in (".hidden", "environment"):
        (workspace.folder / name / "lib").mkdir(parents=True)
        (workspace.folder / name / "lib" / "broken.dfs").write_text("no schedule\n")
    (workspace.folder / "environment" / "pyvenv.cfg").write_text("")
    assert run(["check", "."]) == 0
    assert "broken" not in capsys.readouterr().err
