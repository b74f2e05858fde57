from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run

Capture = pytest.CaptureFixture[str]

TEXT = """dfs 1

model "dynaflow_dsl.models.llama:decode" (layers = 2)

schedule halves:
    stream side
    split batch into 2 as half
    capture batch at [2, 4]

    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest

        stagger half by 1:
            attn
            mlp
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DFSC_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "halves.dfs"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_contenders_are_measured_on_the_same_step(file: str, capsys: Capture) -> None:
    words = ["--only", "eager", "--only", "sequential", "--only", "scheduled"]
    words += ["--seconds", "0.001", "--output-format", "json"]
    assert run(["bench", file, *words]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    # The largest captured size, although nothing is captured on a CPU.
    assert result["sizes"] == {"batch": 4}
    assert result["report"]["sizes"] == []
    rows = result["contenders"]
    assert list(rows) == ["eager", "sequential", "scheduled"]
    for row in rows.values():
        assert len(row["wall"]) == len(row["host"]) == 5
        assert row["apart"] < 1e-4


def test_an_unknown_contender_lists_the_known_ones(file: str, capsys: Capture) -> None:
    assert run(["bench", file, "--only", "eagre"]) == 2
    assert "choose from eager, torch.compile, sequential" in capsys.readouterr().err
