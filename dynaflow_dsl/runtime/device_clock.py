"""A clock that a CUDA device reads itself, between the steps that run on its streams.

One small kernel before and after each step waits until a time that a tensor says, then
writes the device's time. The tensor is read when the kernel runs, so that one captured
graph replays with other delays each time; a delay by `torch.cuda._sleep` would be the
graph's for good, and counts cycles of a clock that changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from dynaflow_dsl.runtime.errors import LoadError

# The name of the kernel in a profiler's trace.
MARK = "dfsc_mark"


class DeviceClock:
    """Times and delays, in nanoseconds, of `steps` steps of a device.

    `begin` and `end` put a mark on the current stream. With `numbered`, the grid of a
    mark is one more than its slot, by which a trace tells them apart: 2k is the slot of
    the beginning of step k, 2k + 1 that of its end.
    """

    def __init__(
        self, device: torch.device, steps: int, *, numbered: bool = False
    ) -> None:
        self._mark = _mark_kernel()
        self._numbered = numbered
        self._gate = 2 * steps
        self._stamps = torch.zeros(2 * steps + 1, dtype=torch.int64, device=device)
        self._releases = torch.zeros_like(self._stamps)

    def set_releases(self, releases: Mapping[int, float]) -> None:
        """When steps may begin from now on, counted from the gate of their run."""
        lengths = torch.zeros(self._releases.shape, dtype=torch.int64)
        for step, length in releases.items():
            lengths[2 * step] = int(length)
        self._releases.copy_(lengths)

    def start(self, wait: float = 0.0) -> None:
        """Begin a run on the current stream, after so many nanoseconds."""
        self._releases[self._gate] = int(wait)
        self._put(self._gate)

    def begin(self, step: int) -> None:
        """Hold the step back on the current stream, and take the time."""
        self._put(2 * step)

    def end(self, step: int) -> None:
        """Take the time after the step's work on the current stream."""
        self._put(2 * step + 1)

    def read(self) -> list[tuple[float, float]]:
        """Beginning and end of each step; waits for the device."""
        times = self._stamps.tolist()
        return list(zip(times[0:-1:2], times[1::2], strict=True))

    def _put(self, slot: int) -> None:
        grid = (slot + 1 if self._numbered else 1,)
        self._mark[grid](self._stamps, self._releases, slot, self._gate, num_warps=1)


@cache
def _mark_kernel() -> Any:
    """The kernel, which Triton compiles at its first use.

    Raises LoadError (DFS808) where Triton is missing.
    """
    try:
        from dynaflow_dsl.runtime.device_mark import dfsc_mark
    except ImportError as error:
        raise LoadError(
            "DFS808",
            "the times of steps on a CUDA device are taken by a Triton kernel, and "
            f"Triton cannot be imported ({error}): install `triton`, which comes with "
            "PyTorch's builds for CUDA.",
        ) from error
    return dfsc_mark
