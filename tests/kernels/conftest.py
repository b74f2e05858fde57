from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernels.ranks import Rank, interpreted


@pytest.fixture(scope="session", autouse=True)
def interpreter() -> Iterator[None]:
    with interpreted():
        yield


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Rank]]:
    """Lets the kernels find their rank by the role that they are called with."""
    found: dict[str, Rank] = {}
    for room in ("reduction", "exchange"):
        place = f"dynaflow_dsl.kernels.{room}.peers_of"
        monkeypatch.setattr(place, lambda role, tensor: found.get(role))
    return found
