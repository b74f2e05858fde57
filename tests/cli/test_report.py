import io
import sys

import pytest

from dynaflow_dsl.cli.foreign import faults_shown
from dynaflow_dsl.cli.report import ExitCode, Reporter
from dynaflow_dsl.cli.running import going_on
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Severity
from dynaflow_dsl.runtime import RuntimeFault

ERROR = Diagnostic("DFS201", "nothing matches")
WARNING = Diagnostic("DFS502", "another model", severity=Severity.WARNING)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_warnings_leave_the_exit_code_alone() -> None:
    reporter = Reporter()
    reporter.show([WARNING])
    assert reporter.code == ExitCode.FINE


def test_the_exit_code_only_rises() -> None:
    reporter = Reporter()
    reporter.show([Diagnostic("DFS113", "no such file"), ERROR])
    reporter.show([ERROR])
    assert reporter.code == ExitCode.COULD_NOT_RUN


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("DFS004", ExitCode.FINDINGS),
        ("DFS111", ExitCode.FINDINGS),
        ("DFS502", ExitCode.FINDINGS),
        ("DFS110", ExitCode.COULD_NOT_RUN),
        ("DFS113", ExitCode.COULD_NOT_RUN),
        ("DFS801", ExitCode.COULD_NOT_RUN),
        ("DFS900", ExitCode.COULD_NOT_RUN),
    ],
)
def test_the_exit_code_follows_from_the_kind_of_error(
    code: str, expected: ExitCode
) -> None:
    reporter = Reporter()
    reporter.show([Diagnostic(code, "message")])
    assert reporter.code == expected


def test_full_diagnostics_are_set_apart(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter()
    reporter.show([ERROR, WARNING])
    assert "\n\nwarning[DFS502]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"),
    [(True, "", True), (True, "1", False), (False, "", False)],
)
def test_colour_is_for_terminals_that_want_it(
    terminal: bool, no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("NO_COLOR", no_color)
    Reporter().show([ERROR])
    assert ("\x1b[31m" in stream.getvalue()) is coloured


def test_concise_has_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.delenv("NO_COLOR", raising=False)
    Reporter(format="concise").show([ERROR])
    assert stream.getvalue() == "error[DFS201]: nothing matches\n"


def test_one_rank_writes_the_document_and_others_what_is_wrong() -> None:
    for code, written in ((None, False), ("DFS201", True)):
        output = io.StringIO()
        reporter = Reporter("json", output=output, silent=True)
        reporter.show([WARNING] if code is None else [Diagnostic(code, "wrong")])
        reporter.close()
        assert bool(output.getvalue()) is written


@pytest.mark.parametrize(
    "error",
    [
        RuntimeFault("DFS806", "the kernel gives something else"),
        DiagnosticError([Diagnostic("DFS110", "the target raised ValueError")]),
        ValueError("a defect"),
    ],
)
def test_what_has_no_place_is_about_the_file_at_hand(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = Reporter("github")
    with going_on(reporter, "schedules/halves.dfs"), faults_shown(reporter):
        raise error
    with going_on(reporter, "other.dfs"):
        reporter.show([Diagnostic("DFS503", "an orphan", about="executors/old.py")])
    reporter.show([ERROR])
    first, second, last = (
        line.partition(",title=")[0] for line in capsys.readouterr().err.splitlines()
    )
    assert first == "::error file=schedules/halves.dfs"
    assert second == "::error file=executors/old.py"
    assert "file=" not in last
