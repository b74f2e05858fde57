from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from dynaflow_dsl.runtime import Executor
from tests.runtime.fake_graphs import FakeGraphs, loaded
from tests.runtime.toy_model import Toy, make_toy
from tests.runtime.write_toy_maps import EXECUTORS
from tests.verification.mutations import import_module


@pytest.fixture(scope="session")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of compiled parts for all tests of a session."""
    return tmp_path_factory.getbasetemp() / "compiled"


@pytest.fixture(autouse=True)
def own_caches(
    monkeypatch: pytest.MonkeyPatch, compiled_folder: Path
) -> Iterator[None]:
    monkeypatch.setenv("DFSC_CACHE_DIR", str(compiled_folder))
    monkeypatch.delenv("DFSC_SEQUENTIAL", raising=False)
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    yield
    torch.random.set_rng_state(state)


@pytest.fixture(scope="session")
def toy() -> Toy:
    return make_toy()


@pytest.fixture(scope="session")
def halves() -> ModuleType:
    return import_module(EXECUTORS / "toy_halves.py")


@pytest.fixture
def backend() -> FakeGraphs:
    return FakeGraphs()


@pytest.fixture
def step(
    halves: ModuleType,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    backend: FakeGraphs,
) -> Executor:
    """The toy in halves, captured on a fake device."""
    return loaded(halves, toy, monkeypatch, backend)


@pytest.fixture(scope="session")
def lanes() -> ModuleType:
    return import_module(EXECUTORS / "toy_lanes.py")
