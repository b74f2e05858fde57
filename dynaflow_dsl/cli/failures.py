"""A rank that fails is named on the others, which may be waiting for it anywhere.

They may be in a collective that never ends, so nothing that ranks do together can tell
them. The rank that fails leaves word where torchrun's ranks found each other. A thread
on each of the others looks there, says who has failed, and ends its process.
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
