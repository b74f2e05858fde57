"""What the engine's configuration says, without the engine."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dynaflow_dsl.integrations.vllm.config import options_of
from dynaflow_dsl.integrations.vllm.step import lasting_name


def test_a_schedule_that_ships_keeps_its_name() -> None:
    """Its module would be stale where the package is installed elsewhere."""
    name = "std:vllm/halves.dfs"
    config = SimpleNamespace(additional_config={"dynaflow": {"schedule": name}})
    assert options_of(config).schedule == name
    assert lasting_name(name) == name


def test_a_file_is_found_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lasting_name("mine.dfs") == os.fspath(tmp_path / "mine.dfs")
