"""The modules in `executors/` are what the compiler writes."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run

ROOT = Path(__file__).parents[2]
SCHEDULES = {"llama_halves": "schedules/llama/halves.dfs"}


def test_every_module_has_a_schedule() -> None:
    assert {path.stem for path in (ROOT / "executors").glob("*.py")} == set(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_committed_modules_are_current(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    known = json.loads((ROOT / "executors" / f"{name}.map.json").read_text())
    fingerprint = known["model"]["fingerprint"]
    for package in ("torch", "transformers"):
        if version(package).partition("+")[0] != fingerprint[package]:
            pytest.skip(f"made with {package} {fingerprint[package]}")
    monkeypatch.chdir(ROOT)
    code = run(["compile", "--check", SCHEDULES[name]])
    assert code == 0, capfd.readouterr().err
