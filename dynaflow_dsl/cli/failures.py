"""A rank that fails is named on the others, which may be waiting for it anywhere.

They may be in a collective that never ends, so nothing that ranks do together can tell
them. The rank that fails leaves word where torchrun's ranks found each other. A thread
on each of the others looks there, says who has failed, and ends its process.

A failure that ranks could go on after ends them only where it is of one rank alone: it
waits for the others where they all meet, which one that waits for it never reaches.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

# Seconds from one look to the next; those that others have to fail by themselves or to
# end, before a word ends them; and those that a rank waits until they have heard it.
INTERVAL, PATIENCE, LINGERING = 0.2, 2.0, 6.0

# Seconds from one look at who has come to the next: what ranks measure may wait for it;
# and those that one which has failed gives the others to come where all meet.
MEETING_INTERVAL, RESPITE = 0.005, 10.0


class LeftAloneError(Exception):
    """The others do not come to where this rank waits for them; the text says why."""


class Failures:
    """What ranks of one launch leave word of; `store` is used by nobody else.

    `end` gets a sentence that names the rank that has failed, on one that has not.
    """

    def __init__(
        self, store: Any, rank: int, count: int, end: Callable[[str], None]
    ) -> None:
        self._store = store
        self._rank = rank
        self._count = count
        self._end = end
        # torchrun may start all ranks again, and keeps the store.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._word = f"dfsc/{attempt}/failed"
        self._heard = f"dfsc/{attempt}/heard"
        self._meeting = f"dfsc/{attempt}/meeting"
        self._meetings = 0
        self._lock = threading.Lock()
        self._done = threading.Event()

    def watch(self) -> None:
        """Look for words of others, in a thread of its own, until `stop`."""
        threading.Thread(target=self._look, name="failed ranks", daemon=True).start()

    def stop(self) -> None:
        """Look no longer: the rank has ended well, or says itself why it has not."""
        self._done.set()

    def leave(self, reason: str) -> None:
        """Let the others know why this rank ends, and wait a little until they do."""
        self.stop()
        with self._lock:
            try:
                # Of several ranks that fail the last one is named: any will do.
                self._store.set(self._word, f"rank {self._rank} has failed: {reason}")
                heard = int(self._store.add(self._heard, 1))
                until = time.monotonic() + LINGERING
                while heard < self._count and time.monotonic() < until:
                    time.sleep(INTERVAL)
                    heard = int(self._store.add(self._heard, 0))
            except RuntimeError:
                pass  # whoever keeps the store has ended

    def meet(self, reason: str | None, seconds: float) -> list[str | None]:
        """Why each rank has failed before it came here, or None where it has not.

        No collective: the device or the group may be held by one that never ends.
        Raises LeftAloneError where this rank has failed and the others do not come for
        a while, since they wait for it elsewhere, or where somebody is missing after
        `seconds`.
        """
        self._meetings += 1
        keys = [
            f"{self._meeting}/{self._meetings}/{rank}" for rank in range(self._count)
        ]
        try:
            with self._lock:
                self._store.set(
                    keys[self._rank], "" if reason is None else f"-{reason}"
                )
            patience = seconds if reason is None else min(seconds, RESPITE)
            until = time.monotonic() + patience
            while not self._has(keys):
                if time.monotonic() > until:
                    raise LeftAloneError(
                        reason or f"other ranks did not come for {seconds:g} s"
                    )
                time.sleep(MEETING_INTERVAL)
            with self._lock:
                said = [self._store.get(key).decode("utf-8", "replace") for key in keys]
        except RuntimeError as error:
            raise LeftAloneError(
                reason or "whoever keeps what ranks say has ended"
            ) from error
        return [one[1:] if one else None for one in said]

    def _has(self, keys: list[str]) -> bool:
        with self._lock:
            return bool(self._store.check(keys))

    def _look(self) -> None:
        try:
            while not self._done.wait(INTERVAL):
                with self._lock:
                    said = self._done.is_set() or self._store.check([self._word])
                if said:
                    break
            if self._done.wait(PATIENCE):
                return
            with self._lock:
                word = self._store.get(self._word).decode("utf-8", "replace")
                self._store.add(self._heard, 1)
        except RuntimeError:
            return  # whoever keeps the store has ended
        if not self._done.is_set():
            self._end(word)


def failures_here(end: Callable[[str], None]) -> Failures | None:
    """Those of the ranks that torchrun has started; None where its store has gone.

    A connection of its own: whoever waits for a key keeps others from using theirs.
    """
    import torch.distributed as dist

    from dynaflow_dsl.runtime.groups import running_ranks

    made: Any = dist  # its stores are not declared
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = made.TCPStore(
            host, port, is_master=False, timeout=timedelta(seconds=LINGERING)
        )
    except (RuntimeError, ValueError):
        return None
    return Failures(store, *running_ranks(), end)
