"""Exchanges between experts in captured steps: through kernels alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run

ROOT = Path(__file__).parents[2]
WORDS = ("-M", "layers=1", "-M", "ways=2")


def written(folder: Path, *changes: tuple[str, str]) -> str:
    text = (ROOT / "schedules" / "moe" / "two_batch.dfs").read_text(encoding="utf-8")
    line = "    split batch into 2 as mb\n"
    for old, new in ((line, f"{line}    capture batch at [8]\n"), *changes):
        assert old in text
        text = text.replace(old, new)
    path = folder / "captured.dfs"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_kernels_that_ask_nobody_are_captured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["compile", written(tmp_path), "-o", str(tmp_path), *WORDS])
    assert code == 0, capsys.readouterr().err


def test_the_operators_themselves_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(
        tmp_path,
        (" via send(programs = programs)", ""),
        ('kernel send = "dynaflow_dsl.kernels:gather_dispatch"\n', ""),
    )
    assert run(["compile", path, "-o", str(tmp_path), *WORDS]) == 1
    said = capsys.readouterr().err
    assert "DFS321" in said
    assert "dynaflow.dispatch.default" in said
    assert "dynaflow.combine.default" not in said
