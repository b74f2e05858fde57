from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kernels.ranks import Rank

# Triton decides when it is imported whether it interprets, its own library included,
# and Inductor imports it. So these tests have a process of their own.
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted"]


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Rank]]:
    """Lets the kernels find their rank by the role that they are called with."""
    found: dict[str, Rank] = {}
    for place in ("reduction.peers_of", "exchange.peers_of", "copied.transport_of"):
        monkeypatch.setattr(
            f"dynaflow_dsl.kernels.{place}", lambda role, tensor: found.get(role)
        )
    return found
