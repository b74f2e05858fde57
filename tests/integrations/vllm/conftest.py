"""Everything here needs the engine: `make test-vllm` installs it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integrations.vllm.engines import written

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
