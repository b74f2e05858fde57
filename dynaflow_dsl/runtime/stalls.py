"""Says which step hangs, where nothing that runs in the step can.

On a CUDA device the host goes on while a collective waits for a rank that never comes,
and a step that is one CUDA graph has no places at all. NCCL's own watchdog ends the
process when the group's timeout is over and speaks of numbers of collectives. A thread
here looks at the steps, and says shortly before which one has not ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch

# What has been given to a device, and whether it is done.
Mark = Callable[[], bool]

_log = logging.getLogger("dynaflow_dsl.runtime")


@dataclass(slots=True)
class _Begun:
    """A step, when it began, the collective that it started last, and its end."""

    step: str
    since: float
    last: Callable[[], str] | None = None
    ended: Mark | None = None
    told: bool = False


class StallWatch:
    """Watches the steps of one module.

    `mark` gives what is done when all work is that the device has been given so far.
    """

    def __init__(
        self,
        mark: Callable[[], Mark],
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = _log.error,
    ) -> None:
        self._limit = float("inf")
        self._mark = mark
        self._clock = clock
        self._tell = tell
        # Steps that may not have ended: the host runs ahead of a device.
        self._begun: deque[_Begun] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, step: str) -> None:
        """A step begins; those before it have been given to the device as a whole."""
        with self._lock:
            self._begun.append(_Begun(step, self._clock()))

    def started(self, step: Callable[[], str]) -> None:
        """A part with collectives begins; `step` says which, if it is asked."""
        with self._lock:
            if self._begun:
                self._begun[-1].last = step

    def end(self) -> None:
        """The host has come to the end of a step."""
        with self._lock:
            if self._begun:
                self._begun[-1].ended = self._mark()

    def abandon(self) -> None:
        """The step that has begun has failed, if one has: who called it knows."""
        with self._lock:
            if self._begun and self._begun[-1].ended is None:
                self._begun.pop()

    def watch(self, limit: timedelta) -> None:
        """Look from time to time, in a thread of its own; `limit` is for one step."""
        self._limit = limit.total_seconds()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="stalled steps", daemon=True
            )
            self._thread.start()

    def look(self) -> None:
        """Tell of the first step that has been under way for too long, once."""
        with self._lock:
            try:
                begun = self._first()
            except RuntimeError:
                # The device has failed, or a capture forbids the question.
                return
            if begun is None or begun.told or self._clock() - begun.since < self._limit:
                return
            begun.told = True
        last = ""
        if begun.last is not None:
            last = f"; the last collective that was started is that of {begun.last()}"
        self._tell(
            f"DFS816: the step {begun.step}, has not ended for {self._limit:g} s"
            f"{last}. Another rank has stopped, is late, or is in another step; the "
            "process group gives up when its timeout is over."
        )

    def _first(self) -> _Begun | None:
        """The first step that has not ended: from now on at the latest it runs."""
        dropped = False
        while self._begun:
            begun = self._begun[0]
            if begun.ended is None or not begun.ended():
                if dropped:
                    begun.since = max(begun.since, self._clock())
                return begun
            self._begun.popleft()
            dropped = True
        return None

    def _run(self) -> None:
        while True:
            time.sleep(min(1.0, self._limit / 20))
            self.look()


def device_mark(device: torch.device) -> Mark:
    """What is done when a device's current stream is: in a capture, at once."""
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            return lambda: True
        event: torch.cuda.Event = torch.cuda.current_stream().record_event()
    return event.query


def before(timeout: timedelta) -> timedelta:
    """A little less than a group's timeout, after which its process may end."""
    return max(timeout - timedelta(seconds=10), timeout * 0.9)
