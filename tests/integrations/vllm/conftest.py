"""Everything here needs the engine: `make test-vllm` installs it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integrations.vllm.engines import ROOT

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("vllm") is not None:
        return
    skip = pytest.mark.skip(reason="needs vLLM: make test-vllm")
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("engine"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny Llama and its tokenizer."""
    return written(tmp_path_factory.mktemp("models"), "Llama")


def written(home: Path, family: str) -> Path:
    """A folder with a tiny model of a family, as transformers calls it."""
    folder = home / family
    script = "tests.integrations.vllm.tiny_model"
    done = subprocess.run(
        [sys.executable, "-m", script, str(folder), family],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder
