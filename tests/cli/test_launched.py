"""Commands that torchrun has started, where the ranks do not come together."""

from __future__ import annotations

import socket

import click
import pytest
import torch

from dynaflow_dsl.cli.launched import joined_ranks
from dynaflow_dsl.cli.main import run
from dynaflow_dsl.cli.report import Reporter


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


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_a_rank_that_is_alone_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    port = start(monkeypatch, 0, 2)
    code = run([command, "--rank-timeout", "1", "schedules/llama/two_batch.dfs"])
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
