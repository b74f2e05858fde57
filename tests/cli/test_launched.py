"""Commands that torchrun has started, where the ranks do not come together."""

from __future__ import annotations

import socket
from collections.abc import Callable

import click
import pytest
import torch
import torch.distributed as dist

from dynaflow_dsl.cli.failures import Failures, LeftAloneError
from dynaflow_dsl.cli.launched import Meet, joined_ranks, met
from dynaflow_dsl.cli.main import run
from dynaflow_dsl.cli.report import ExitCode, Reporter
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.runtime import LoadError


def start(monkeypatch: pytest.MonkeyPatch, rank: int, ranks: int) -> str:
    """What torchrun tells a process; the port, where nobody listens, is returned."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank}
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", port)
    return port


@pytest.mark.parametrize(
    "command", [("bench",), ("verify",), ("profile", "-o", "trace.json")]
)
def test_a_rank_that_is_alone_says_so(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    port = start(monkeypatch, 0, 2)
    code = run([*command, "--rank-timeout", "1", "schedules/llama/two_batch.dfs"])
    said = capsys.readouterr().err
    assert code == 2
    assert f"rank 0 of 2 could not join the others at 127.0.0.1:{port}: " in said
    assert "DFS900" not in said


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 3, 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with (
        pytest.raises(click.ClickException, match="--nproc-per-node=2 at most"),
        joined_ranks(Reporter(), 1),
    ):
        raise AssertionError("they have joined")


def test_a_gpu_without_memory_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(place: int) -> None:
        raise RuntimeError("CUDA error: out of memory\nCompile with ...")

    start(monkeypatch, 1, 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", full)
    with (
        pytest.raises(
            click.ClickException, match=r"GPU 1 .*: CUDA error: out of memory"
        ),
        joined_ranks(Reporter(), 1),
    ):
        raise AssertionError("they have joined")


def end_with(
    reporter: Reporter,
    work: Exception | None | Callable[[Meet], object],
    **options: bool,
) -> int:
    """The exit code of a rank, the only one, whose work raises an exception."""
    try:
        with joined_ranks(reporter, 5, **options) as meet:
            if isinstance(work, Exception):
                raise work
            if work is not None:
                reporter.show([Diagnostic("DFS201", "nothing matches")])
                work(meet)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    finally:
        dist.destroy_process_group()
    raise AssertionError("it has not ended")


@pytest.mark.parametrize(
    ("error", "said", "code"),
    [
        (LoadError("DFS801", "no GPU"), "DFS801: no GPU", ExitCode.COULD_NOT_RUN),
        (
            DiagnosticError([Diagnostic("DFS201", "nothing matches")]),
            "DFS201: nothing matches",
            ExitCode.FINDINGS,
        ),
        (
            click.UsageError("--size: batch goes from 1 to 4"),
            "--size: batch goes from 1 to 4",
            ExitCode.COULD_NOT_RUN,
        ),
        (KeyError("odd"), "DFS110: ", ExitCode.COULD_NOT_RUN),
    ],
)
def test_a_rank_that_fails_says_why_before_it_tells_the_others(
    error: Exception,
    said: str,
    code: ExitCode,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    start(monkeypatch, 0, 1)
    left: list[tuple[str, str]] = []

    def leave(self: Failures, reason: str) -> None:
        left.append((reason, capsys.readouterr().err))

    monkeypatch.setattr(Failures, "leave", leave)
    assert end_with(Reporter(), error) == code
    ((reason, shown),) = left
    assert reason.startswith(said)
    assert said.partition(": ")[2] in shown


def test_errors_that_were_shown_end_all_ranks_where_all_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start(monkeypatch, 0, 1)
    left: list[str] = []
    monkeypatch.setattr(Failures, "leave", lambda self, reason: left.append(reason))

    reporter = Reporter()
    reporter.show([Diagnostic("DFS201", "nothing matches")])
    assert end_with(reporter, None, all_or_none=True) == ExitCode.FINDINGS
    assert left == ["DFS201: nothing matches"]
    start(monkeypatch, 0, 1)
    with joined_ranks(reporter, 5):
        pass
    assert len(left) == 1


def test_ranks_meet_with_what_was_wrong_with_the_work_between(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said: list[str | None] = []

    def meet(reason: str | None) -> list[str | None]:
        said.append(reason)
        return [reason]

    reporter = Reporter()
    with met(reporter, meet):
        for message in ("nothing matches", "nothing is left"):
            with met(reporter, meet):
                reporter.show([Diagnostic("DFS201", message)])
    with met(reporter, meet):
        pass
    assert said == [
        "DFS201: nothing matches",
        "DFS201: nothing is left",
        "DFS201: nothing matches",
        None,
    ]
    assert reporter.first_error == "DFS201: nothing matches"
    assert capsys.readouterr().err


def test_one_that_fails_where_all_would_go_on_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though another error was shown before."""
    left: list[str] = []

    def alone(self: Failures, reason: str | None, seconds: float) -> list[str | None]:
        raise LeftAloneError(str(reason))

    monkeypatch.setattr(Failures, "meet", alone)
    monkeypatch.setattr(Failures, "leave", lambda self, reason: left.append(reason))
    start(monkeypatch, 0, 1)
    assert end_with(Reporter(), lambda meet: meet("eager: no")) == 2
    assert left == ["eager: no"]
    assert "Error: eager: no" in capsys.readouterr().err


def test_alone_nothing_is_caught() -> None:
    with pytest.raises(KeyError), joined_ranks(Reporter(), 5, all_or_none=True):
        raise KeyError
