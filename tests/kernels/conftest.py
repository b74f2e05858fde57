from __future__ import annotations

import os

import pytest

from tests.kernels.ranks import Rank, meet

# Triton decides when it is imported whether it interprets, its own library included,
# and Inductor imports it. So these tests have a process of their own.
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted"]


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> dict[str, Rank]:
    """Where a rank of a world says which role it has."""
    return meet(monkeypatch)
