"""Overlap of windows on a real device; run with `pytest -m gpu`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run

pytestmark = pytest.mark.gpu

TARGET = "tests.gpu.branches:branches"


@pytest.fixture
def schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    from tests.gpu.branches import SCHEDULE

    (tmp_path / "branches.dfs").write_text(SCHEDULE)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    return "branches.dfs"


def measured(schedule: str, *words: str) -> int:
    return run(
        ["verify", schedule, "--model", TARGET, "--text-only", "--overlap", *words]
    )


def test_branches_overlap(schedule: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("--eager",)):
        code = measured(schedule, *words)
        output = capsys.readouterr()
        print(output.out, output.err)
        assert code == 0, output.out
        assert "left | right" in output.out
    assert measured(schedule, "--min-overlap", "1.0") == 1
    assert "below 100%" in capsys.readouterr().out


def test_one_stream_scores_nothing(
    schedule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    code = measured(schedule, "--one-stream", "--output-format", "json")
    document = json.loads(capsys.readouterr().out)
    assert code == 1
    (report,) = document["results"]
    assert report["one_stream"]
    for window in report["windows"]:
        assert window["count"] > 0
        assert window["most"] == 0.0
    assert measured(schedule, "--one-stream", "--min-overlap", "0") == 0
