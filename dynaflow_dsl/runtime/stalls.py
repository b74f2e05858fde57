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
    """Watches the steps of one module; `limit` is how long one may take.

    `mark` gives what is done when all work is that the device has been given so far.
    """

    def __init__(
        self,
        limit: timedelta,
        mark: Callable[[], Mark],
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = _log.error,
    ) -> None:
        self._limit = limit.total_seconds()
        self._mark = mark
        self._clock = clock
        self._tell = tell
        self._begun: _Begun | None = None
        self._thread: threading.Thread | None = None

    def begin(self, step: str) -> None:
        """A step begins; the one before it has been given to the device as a whole."""
        self._begun = _Begun(step, self._clock())

    def started(self, step: Callable[[], str]) -> None:
        """A part with collectives begins; `step` says which, if it is asked."""
        if self._begun is not None:
            self._begun.last = step

    def end(self) -> None:
        """The host has come to the end of a step."""
        if self._begun is not None:
            self._begun.ended = self._mark()

    def abandon(self) -> None:
        """The step has failed: who called it knows."""
        self._begun = None

    def watch(self) -> None:
        """Look from time to time, in a thread of its own."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="stalled steps", daemon=True
            )
            self._thread.start()

    def look(self) -> None:
        """Tell of the step that has been under way for too long, once."""
        begun = self._begun
        if begun is None or begun.told or self._clock() - begun.since < self._limit:
            return
        begun.told = True
        if begun.ended is not None and begun.ended():
            return
        last = ""
        if begun.last is not None:
            last = f"; the last collective that was started is that of {begun.last()}"
        self._tell(
            f"DFS816: the step {begun.step}, has not ended for {self._limit:g} s"
            f"{last}. Another rank has stopped, is late, or is in another step; the "
            "process group gives up when its timeout is over."
        )

    def _run(self) -> None:
        while True:
            time.sleep(min(1.0, self._limit / 20))
            self.look()


def device_mark() -> Mark:
    """What is done when the current CUDA stream is: in a capture, at once."""
    if torch.cuda.is_current_stream_capturing():
        return lambda: True
    event: torch.cuda.Event = torch.cuda.current_stream().record_event()
    return event.query


def before(timeout: timedelta) -> timedelta:
    """A little less than a group's timeout, after which its process may end."""
    return max(timeout - timedelta(seconds=10), timeout * 0.9)
