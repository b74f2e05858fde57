"""A device that only counts: marks, a captured graph, and a profiler of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch


class FakeDevice:
    """Stands in for a CUDA device where steps run when they are called.

    `events` are those of a profiler's trace; `lanes` numbers the streams as a driver
    might.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[dict[str, Any]] = []
        self.starts: list[float] = []
        self.releases: Mapping[int, float] = {}

    def tick(self, name: str, grid: int = 1) -> float:
        """One kernel."""
        self.now += 1.0
        self.events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": name,
                "ts": self.now,
                "dur": 0.5,
                "args": {"stream": 7, "grid": [grid, 1, 1]},
            }
        )
        return self.now

    def clock(self, device: torch.device, steps: int, *, numbered: bool = False) -> Any:
        """What stands in for a `DeviceClock`."""
        return FakeClock(self, steps, numbered)


class FakeClock:
    def __init__(self, device: FakeDevice, steps: int, numbered: bool) -> None:
        self._device = device
        self._numbered = numbered
        self._times = [(0.0, 0.0)] * steps

    def set_releases(self, releases: Mapping[int, float]) -> None:
        self._device.releases = dict(releases)

    def start(self, wait: float = 0.0) -> None:
        self._device.starts.append(wait)

    def begin(self, step: int) -> None:
        grid = 2 * step + 1 if self._numbered else 1
        self._times[step] = (self._device.tick("dfsc_mark", grid), 0.0)
        self._device.tick(f"kernel of {step}")

    def end(self, step: int) -> None:
        grid = 2 * step + 2 if self._numbered else 1
        begin, _ = self._times[step]
        self._times[step] = (begin, self._device.tick("dfsc_mark", grid))

    def read(self) -> list[tuple[float, float]]:
        return list(self._times)


def fake_cuda(monkeypatch: pytest.MonkeyPatch, *, captures: bool = True) -> None:
    """Let graphs be what was called while they were captured, which is run once."""

    class Graph:
        replays = 0

        def replay(self) -> None:
            self.replays += 1

    @contextmanager
    def capture(graph: Any, capture_error_mode: str) -> Iterator[None]:
        yield
        if not captures:
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr("torch.cuda.synchronize", lambda device=None: None)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device=None: "Fake")
    monkeypatch.setattr("torch.cuda.CUDAGraph", Graph)
    monkeypatch.setattr("torch.cuda.graph", capture)
