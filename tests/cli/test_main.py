import errno
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dynaflow_dsl import __version__
from dynaflow_dsl.cli import explain
from dynaflow_dsl.cli.main import COMMANDS, run
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.diagnostics.codes import Explanation

Capture = pytest.CaptureFixture[str]


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a function of this package raise an exception."""
    raising_in(Path(explain.__file__), error, monkeypatch)


def raising_in(
    path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {"error": error}
    text = "def raise_error(code):\n    raise error\n"
    exec(compile(text, str(path), "exec"), names)
    monkeypatch.setattr(explain, "explanation", names["raise_error"])


def test_version(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"dfsc, version {__version__}\n"


def test_help_lists_all_commands(capsys: Capture) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: Capture) -> None:
    assert run([name, "--help"]) == 0
    assert f"Usage: dfsc {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prune"], "No such command 'prune'"),
        (["check"], "name schedule files or folders"),
        (["explain", "DFS302", "--depth"], "No such option"),
        (["--output-format", "yaml", "explain"], "'yaml' is not one of"),
        (["explain", "DFS99999"], "there is no code DFS99999"),
    ],
)
def test_bad_usage_could_not_run(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err


def test_unexpected_exceptions_become_a_diagnostic(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    fail_with(KeyError("lost"), monkeypatch)
    assert run(["explain", "DFS302"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "error[DFS900]: dfsc failed where it should not: KeyError: 'lost'" in (
        output.err
    )
    assert "note: in dynaflow_dsl/cli/explain.py, line " in output.err
    assert "please report it" in output.err
    assert "Traceback" not in output.err


def test_traceback_is_shown_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    fail_with(KeyError("lost"), monkeypatch)
    monkeypatch.setenv("DFSC_TRACEBACK", "1")
    assert run(["explain", "DFS302"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_exceptions_without_text_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    fail_with(RuntimeError(), monkeypatch)
    assert run(["explain", "DFS302"]) == 2
    assert "should not: RuntimeError\n" in capsys.readouterr().err


def test_interrupting_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    fail_with(KeyboardInterrupt(), monkeypatch)
    assert run(["explain", "DFS302"]) == 2
    assert capsys.readouterr().err.strip() == "interrupted"


def test_diagnostics_that_were_raised_are_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    fail_with(DiagnosticError([Diagnostic("DFS201", "nothing matches")]), monkeypatch)
    assert run(["explain", "DFS302"]) == 1
    assert "error[DFS201]: nothing matches" in capsys.readouterr().err


@pytest.mark.parametrize("before", [True, False])
def test_json_is_one_document_with_diagnostics_and_results(
    before: bool, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    page = Explanation("DFS302", "name", "Summary.", "Page.")
    monkeypatch.setattr(explain, "explanation", lambda code: page)
    option = ["--output-format", "json"]
    words = ["explain", "DFS302"]
    assert run([*option, *words] if before else [*words, *option]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert json.loads(output.out) == {
        "format": 1,
        "diagnostics": [],
        "results": [
            {
                "code": "DFS302",
                "name": "name",
                "summary": "Summary.",
                "page": "Page.",
            }
        ],
    }


class Odd(Exception):
    def __str__(self) -> str:
        raise ValueError("nothing to say")


@pytest.mark.parametrize(
    ("error", "said"),
    [(ValueError("mine\nmore"), "ValueError: mine"), (Odd(), "Odd: (it cannot")],
)
def test_what_code_of_the_users_raises_is_no_defect(
    error: Exception,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    (tmp_path / "model.py").write_text("")
    monkeypatch.chdir(tmp_path)
    raising_in(tmp_path / "model.py", error, monkeypatch)
    assert run(["explain", "DFS302"]) == 2
    shown = capsys.readouterr().err
    assert f"error[DFS110]: code of the model or its target raised {said}" in shown
    assert "note: in model.py, line 2" in shown
    assert "defect" not in shown


def test_json_holds_the_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    fail_with(KeyError("lost"), monkeypatch)
    assert run(["--output-format", "json", "explain", "DFS302"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [found["code"] for found in document["diagnostics"]] == ["DFS900"]


def test_concise_is_one_line_per_diagnostic(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    fail_with(KeyError("lost"), monkeypatch)
    assert run(["--output-format", "concise", "explain", "DFS302"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "words", [["check", ""], ["show", ""], ["compile", "", "-o", "x"]]
)
def test_an_empty_path_is_bad_usage(words: list[str], capsys: Capture) -> None:
    assert run(words) == 2
    assert "a path is empty" in capsys.readouterr().err


class Broken(io.StringIO):
    """A stream that fails when it is written out, as a full disk does."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def flush(self) -> None:
        raise self.error


@pytest.mark.parametrize("option", [[], ["--output-format", "json"]])
def test_a_full_disk_is_said_plainly(
    option: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    full = Broken(OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(sys, "stdout", full)
    assert run(["explain", "DFS302", *option]) == 2
    assert capsys.readouterr().err == (
        "Error: stdout cannot be written: No space left on device\n"
    )


def test_a_closed_output_is_said_plainly(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["explain", "DFS302"]) == 2
    assert capsys.readouterr().err == (
        "Error: stdout cannot be written: it is closed\n"
    )


def test_a_reader_that_has_seen_enough_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(BrokenPipeError()))
    assert run(["explain", "DFS302"]) == 0
    assert capsys.readouterr().err == ""


def test_help_on_a_full_disk(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    full = Broken(OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(sys, "stdout", full)
    assert run(["--help"]) == 2
    assert "stdout cannot be written" in capsys.readouterr().err


def test_a_reader_may_go_in_the_middle(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    gone = Broken(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    monkeypatch.setattr(gone, "write", lambda text: gone.flush())
    monkeypatch.setattr(sys, "stdout", gone)
    assert run(["explain", "DFS302"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BrokenPipeError(), 0, ""),
        (OSError(errno.ENOSPC, "full"), 2, "Error: stdout cannot be written: full\n"),
    ],
)
def test_commands_on_several_files_end_without_a_reader(
    error: OSError,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    for name in ("a.dfs", "b.dfs"):
        (tmp_path / name).write_text("dfs 1\nschedule s:\n  stream side\n")
    gone = Broken(error)
    monkeypatch.setattr(gone, "write", lambda text: gone.flush())
    monkeypatch.setattr(sys, "stdout", gone)
    assert run(["fmt", "--diff", str(tmp_path)]) == code
    assert capsys.readouterr().err == said


def test_characters_that_the_output_lacks_are_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = Explanation("DFS302", "name", "Summary.", "a \u00b7 b")
    monkeypatch.setattr(explain, "explanation", lambda code: page)
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert run(["explain", "DFS302"]) == 0
    assert b"a \\xb7 b" in written.getvalue()
