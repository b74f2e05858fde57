"""Says which step hangs, where nothing that runs in the step can, and ends the process.

On a CUDA device the host goes on while a collective waits for a rank that never comes,
and a step that is one CUDA graph has no places at all. NCCL's own watchdog ends the
process when the group's timeout is over and speaks of numbers of collectives; of those
in a replayed graph, and of what waits at a flag in memory that ranks share, it knows
nothing. A thread here looks at the steps, says shortly before the timeout which one has
not ended, and ends the process when it is over. It calls nothing of CUDA's, which might
wait for the device as well.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from dynaflow_dsl.runtime.progress import Mark, Progress

_log = logging.getLogger("dynaflow_dsl.runtime")

# Seconds that others' word may take.
_PATIENCE = 2.0

# Seconds after which a step asks whether another rank has failed, and those that it has
# to end by itself once one has: it may have failed behind the last collective.
_ASKED_AFTER, _RESPITE = 5.0, 10.0


@dataclass(slots=True)
class _Begun:
    """A step, when it began, the collective that it started last, and its end.

    `heard` is when another rank was found to have failed.
    """

    step: str
    since: float
    last: int | None = None
    ended: Mark | None = None
    told: bool = False
    heard: float | None = None


def end_process() -> None:
    """End this process, whose device nobody can wait for any more."""
    for stream in (sys.stdout, sys.stderr):
        # It may be closed, or lead nowhere, or not be there at all.
        with suppress(Exception):
            stream.flush()
    # Nothing is taken down in order: that waits for the device.
    os._exit(1)


class StallWatch:
    """Watches the steps of one module.

    `said` is what other ranks have left word of, and may take its time. `end` is called
    when there is nothing to wait for any more.
    """

    def __init__(
        self,
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = _log.error,
        said: Callable[[], str] = str,
        end: Callable[[], None] = end_process,
    ) -> None:
        self._timeout = float("inf")
        self._progress = progress
        self._clock = clock
        self._tell = tell
        self._said = said
        self._end = end
        # Steps that may not have ended: the host runs ahead of a device.
        self._begun: deque[_Begun] = deque()
        # Collectives by the numbers that a device gives back, from 1 on, each with the
        # step that it was started in.
        self._numbers: dict[Hashable, int] = {}
        self._collectives: list[tuple[str, Callable[[], str]]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._asking: threading.Thread | None = None

    def begin(self, step: str) -> None:
        """A step begins; those before it have been given to the device as a whole."""
        with self._lock:
            self._begun.append(_Begun(step, self._clock()))

    def started(self, key: Hashable, collective: Callable[[], str]) -> None:
        """A part with collectives begins on the current stream.

        `collective` says which, if it is asked, and has one `key` each time.
        """
        with self._lock:
            if not self._begun:
                return
            begun = self._begun[-1]
            number = self._numbers.get((begun.step, key))
            if number is None:
                self._collectives.append((begun.step, collective))
                number = self._numbers[begun.step, key] = len(self._collectives)
            begun.last = number
        # Outside: a queue that is full keeps the host waiting.
        self._progress.begun(number)

    def end(self) -> None:
        """The host has come to the end of a step."""
        with self._lock:
            begun = self._begun[-1] if self._begun else None
        if begun is not None:
            begun.ended = self._progress.mark()

    def abandon(self) -> None:
        """The step that has begun has failed, if one has: who called it knows."""
        with self._lock:
            if self._begun and self._begun[-1].ended is None:
                self._begun.pop()

    def watch(self, timeout: timedelta) -> None:
        """Look from time to time, in a thread of its own; `timeout` is for one step.

        The thread ends when nobody else has the watch, and no step is under way.
        """
        self._timeout = timeout.total_seconds()
        if self._thread is None:
            self._thread = threading.Thread(
                target=_keep_looking,
                args=(weakref.ref(self),),
                name="stalled steps",
                daemon=True,
            )
            self._thread.start()

    @property
    def interval(self) -> float:
        """Seconds from one look to the next."""
        return min(1.0, self._timeout / 20)

    def look(self) -> bool:
        """Tell of the first step that has been under way for long, once, and end.

        Returns whether a step is under way.
        """
        with self._lock:
            begun = self._first()
            if begun is None:
                return False
            late = self._clock() - begun.since
            told = begun.told
            begun.told = told or late >= before(self._timeout)
        if not begun.told:
            self._heed(begun, late)
            return True
        if not told:
            self._tell(
                f"DFS816: the step {begun.step}, has not ended for {late:.0f} s"
                f"{self._where(begun)}. Another rank has stopped, is late, or is in "
                f"another step{self._asked()}. When the timeout of the process "
                f"group is over, {self._timeout:g} s, this process ends."
            )
        elif late >= self._timeout:
            # Told before, and looked at since: who slept with all others goes on.
            self._tell(
                f"DFS816: this process ends, since the step {begun.step}, has not "
                f"ended for {late:.0f} s{self._where(begun)}."
            )
            self._end()
        return True

    def _heed(self, begun: _Begun, late: float) -> None:
        """Tell of another rank's failure while a step is under way, and end in time."""
        if begun.heard is not None:
            if self._clock() - begun.heard >= _RESPITE:
                self._tell(
                    f"DFS816: this process ends, since the step {begun.step}, has not "
                    f"ended for {late:.0f} s{self._where(begun)}, and another rank has "
                    "failed."
                )
                self._end()
        elif late >= _ASKED_AFTER and (said := self._asked()):
            begun.heard = self._clock()
            self._tell(
                f"DFS816: another rank has failed{said}, and the step {begun.step}, "
                f"has not ended for {late:.0f} s{self._where(begun)}. Unless it ends "
                f"in {_RESPITE:g} s, this process does."
            )

    def _asked(self) -> str:
        """What others say, unless they keep everybody waiting for that too."""
        if self._asking is not None and self._asking.is_alive():
            return ""
        heard: list[str] = []
        self._asking = threading.Thread(
            target=lambda: heard.append(self._said()), daemon=True
        )
        self._asking.start()
        self._asking.join(_PATIENCE)
        return heard[0] if heard else ""

    def _where(self, begun: _Begun) -> str:
        """Where the device is, or what the host has started last, in a sentence."""
        found = [
            self._collectives[number - 1]
            for number in self._progress.standing()
            if number
        ]
        here = dict.fromkeys(
            describe() for step, describe in found if step == begun.step
        )
        if here:
            return f"; the device has last begun {' and '.join(here)}"
        if begun.last is not None:
            _, describe = self._collectives[begun.last - 1]
            return f"; the last collective that was started is that of {describe()}"
        return ""

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


def _keep_looking(reference: weakref.ref[StallWatch]) -> None:
    """See `StallWatch.watch`; it is held here only as long as a step is under way."""
    held: StallWatch | None = None
    while (watch := held or reference()) is not None:
        held = watch if watch.look() else None
        interval = watch.interval
        del watch
        time.sleep(interval)


def before(timeout: float) -> float:
    """A little less than a group's timeout, after which its process may end."""
    return max(timeout - 10, timeout * 0.9)
