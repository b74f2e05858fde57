"""Symmetric memory is ready when a step first uses it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from dynaflow_dsl.kernels import symmetric
from dynaflow_dsl.kernels.symmetric import SymmetricPeers

NAME = "torch.distributed._symmetric_memory"
CPU = torch.device("cpu")


def test_the_device_is_idle_around_what_pytorch_writes_on_its_own_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Zeros are written by `empty`, tables by `rendezvous`, in memory of the step's."""
    done: list[str] = []

    def empty(count: int, *, dtype: torch.dtype, device: torch.device) -> Any:
        done.append("empty")
        return torch.zeros(count, dtype=dtype, device=device)

    def rendezvous(mine: torch.Tensor, group: str) -> Any:
        done.append(f"rendezvous of {group}")
        return SimpleNamespace(get_buffer=lambda rank, shape, dtype: mine)

    fake = ModuleType(NAME)
    monkeypatch.setattr(fake, "empty", empty, raising=False)
    monkeypatch.setattr(fake, "rendezvous", rendezvous, raising=False)
    monkeypatch.setitem(sys.modules, NAME, fake)
    monkeypatch.setattr(torch.distributed, "_symmetric_memory", fake, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: done.append("idle"))
    monkeypatch.setattr(symmetric, "setting_up", lambda role, device: nullcontext())
    monkeypatch.setattr(symmetric.Usage, "note", lambda self: None)
    group = SimpleNamespace(group_name="g", size=lambda: 2, rank=lambda: 0)
    monkeypatch.setattr(symmetric, "players", lambda: {"tp": group})
    peers = SymmetricPeers("tp", CPU)
    peers.buffer("sums", (2, 3), torch.float32)
    assert done == ["empty", "idle", "rendezvous of g", "idle"]
    # What is there already is given at once.
    peers.buffer("sums", (3, 2), torch.float32)
    assert len(done) == 4
