import io
import json
import sys

import pytest

from dynaflow_dsl.cli.main import run
from tests.cli.conftest import SCHEDULE, Workspace

Capture = pytest.CaptureFixture[str]


class Input:
    """Stands for stdin."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def untidy(workspace: Workspace) -> str:
    workspace.change(workspace.schedule, "part reduce = rest", "part reduce=rest # all")
    return workspace.schedule.read_text()


def test_a_file_is_laid_out(workspace: Workspace, capsys: Capture) -> None:
    untidy(workspace)
    assert run(["fmt", "stack.dfs"]) == 0
    assert capsys.readouterr().out == "stack.dfs\n"
    expected = SCHEDULE.replace("part reduce = rest", "part reduce = rest  # all")
    assert workspace.schedule.read_text() == expected
    assert run(["fmt", "stack.dfs"]) == 0
    assert capsys.readouterr().out == ""
    assert sorted(workspace.files()) == ["stack.dfs", "targets.py"]


def test_check_names_files_and_writes_nothing(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["fmt", "--check", "stack.dfs"]) == 0
    text = untidy(workspace)
    assert run(["fmt", "--check", "stack.dfs"]) == 1
    assert capsys.readouterr().err == (
        "error[DFS021]: stack.dfs is not laid out as `dfsc fmt` does it\n"
        "  --> stack.dfs:13:9\n"
        "   |\n"
        "13 |         part reduce=rest # all\n"
        "   |         ^^^^^^^^^^^^^^^^^^^^^^ the first line that differs\n"
        "   |\n"
        "   = help: run `dfsc fmt stack.dfs`\n\n"
    )
    assert workspace.schedule.read_text() == text


def test_diff_shows_what_would_change(workspace: Workspace, capsys: Capture) -> None:
    text = untidy(workspace)
    assert run(["fmt", "--diff", "."]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("--- stack.dfs\n+++ stack.dfs\n@@ ")
    assert "\n-        part reduce=rest # all\n" in shown
    assert "\n+        part reduce = rest  # all\n" in shown
    assert workspace.schedule.read_text() == text


def test_line_ends_count(workspace: Workspace, capsys: Capture) -> None:
    workspace.schedule.write_bytes(SCHEDULE.replace("\n", "\r\n").encode())
    assert run(["fmt", "--check", "stack.dfs"]) == 1
    assert run(["fmt", "stack.dfs"]) == 0
    assert workspace.schedule.read_bytes() == SCHEDULE.encode()


def test_a_missing_last_line_end_shows(workspace: Workspace, capsys: Capture) -> None:
    workspace.schedule.write_text(SCHEDULE.rstrip("\n"))
    assert run(["fmt", "--diff", "stack.dfs"]) == 1
    assert "\n\\ No newline at end of file\n" in capsys.readouterr().out


def test_a_file_with_errors_is_left_alone(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(workspace.schedule, "stream side", "strem   side")
    text = workspace.schedule.read_text()
    (workspace.folder / "other.dfs").write_text("dfs   1\n")
    assert run(["fmt"]) == 1
    output = capsys.readouterr()
    assert output.out == "other.dfs\n"
    assert "error[DFS004]: unexpected 'strem'" in output.err
    assert workspace.schedule.read_text() == text


def test_a_missing_file_could_not_run(workspace: Workspace, capsys: Capture) -> None:
    assert run(["fmt", "missing.dfs"]) == 2
    assert "missing.dfs cannot be read" in capsys.readouterr().err


def test_a_link_stays_a_link(workspace: Workspace) -> None:
    untidy(workspace)
    link = workspace.folder / "link.dfs"
    link.symlink_to("stack.dfs")
    assert run(["fmt", "link.dfs"]) == 0
    assert link.is_symlink()
    assert "part reduce = rest  # all" in workspace.schedule.read_text()


@pytest.mark.parametrize(
    ("words", "code"), [(["-"], 0), (["-", "--check"], 1), (["-", "--diff"], 1)]
)
def test_stdin(
    words: list[str],
    code: int,
    workspace: Workspace,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", Input(b"dfs   1\r\n"))
    assert run(["fmt", *words]) == code
    shown = capsys.readouterr().out
    assert shown.startswith({"--check": "", "--diff": "--- -\n"}.get(words[-1], ""))
    assert (shown == "dfs 1\n") == (words == ["-"])


def test_stdin_that_cannot_be_read(
    workspace: Workspace, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Input(b"dfs \xff"))
    assert run(["fmt", "-"]) == 2
    assert "stdin cannot be read: it is not UTF-8" in capsys.readouterr().err
    assert run(["fmt", "-", "stack.dfs"]) == 2


def test_github_annotates_the_line(workspace: Workspace, capsys: Capture) -> None:
    untidy(workspace)
    assert run(["fmt", "--check", "stack.dfs", "--output-format", "github"]) == 1
    assert capsys.readouterr().err == (
        "::error file=stack.dfs,line=13,col=9,title=DFS021 not-formatted"
        "::stack.dfs is not laid out as `dfsc fmt` does it"
        "%0Athe first line that differs%0Ahelp: run `dfsc fmt stack.dfs`\n"
    )


def test_sarif_is_one_document(workspace: Workspace, capsys: Capture) -> None:
    untidy(workspace)
    assert run(["fmt", "--diff", "stack.dfs", "--output-format", "sarif"]) == 1
    output = capsys.readouterr()
    (result,) = json.loads(output.out)["runs"][0]["results"]
    assert result["ruleId"] == "DFS021"
    assert "+        part reduce = rest  # all\n" in output.err


def test_json_holds_the_difference(workspace: Workspace, capsys: Capture) -> None:
    untidy(workspace)
    assert run(["fmt", "--diff", "stack.dfs", "--output-format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [found["code"] for found in document["diagnostics"]] == ["DFS021"]
    assert document["results"][0]["file"] == "stack.dfs"


def test_files_of_the_library_are_not_written(
    workspace: Workspace, capsys: Capture
) -> None:
    before = workspace.files()
    assert run(["fmt", "std:llama/halves.dfs"]) == 2
    assert "is a file of the package" in capsys.readouterr().err
    assert workspace.files() == before
