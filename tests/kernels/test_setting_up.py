"""What transports set up is no part of the step that asks for it first."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dynaflow_dsl.kernels.peers import setting_up


class Seen(TorchDispatchMode):
    """Notes the operations that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.operators.append(str(func))
        return func(*args, **(kwargs or {}))


def test_who_looks_at_operations_sees_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    with Seen() as seen:
        torch.ones(2)
        with setting_up("tp", torch.device("cuda", 0)):
            torch.ones(3).add_(1)
        torch.ones(2)
    assert seen.operators == ["aten.ones.default"] * 2
