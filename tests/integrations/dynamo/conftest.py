"""Every test begins without compiled code, and with the backend known by its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dynaflow_dsl.integrations.dynamo.backend import register
from dynaflow_dsl.integrations.dynamo.report import forget


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    register()
    forget()
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()
