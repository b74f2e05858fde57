"""Which stream of the schedule is current, for what each stream has for itself.

A group of each role is apart for each stream: `tp` is that of main, `tp:comm` one of
the same ranks for the stream `comm`.

What is current is what a schedule has entered, and no number of a device's stream:
PyTorch has some dozens and gives them out again, to other streams of schedules, to the
caller and to captures.
"""

from __future__ import annotations

import threading

_MAIN = "main"

_THREAD = threading.local()


def name_thread(name: str = _MAIN) -> str:
    """Say which stream's work this thread does from here on; returns whose it did."""
    before = name_of_current_stream()
    _THREAD.name = name
    return before


def name_of_current_stream() -> str:
    """The name in the schedule; `main` outside of all schedules."""
    return getattr(_THREAD, "name", _MAIN)


def group_of_stream(role: str) -> str:
    """The group that plays a role on the current stream."""
    name = name_of_current_stream()
    return role if name == _MAIN else f"{role}:{name}"
