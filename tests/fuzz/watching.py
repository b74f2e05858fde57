"""Running commands on hostile input: what they may do, and what they must not."""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import FrameType

from dynaflow_dsl.cli.main import run

# An input should take a small part of a second; a machine may be busy.
PATIENCE = 30


class StuckError(Exception):
    """A command did not end."""


@contextmanager
def watchdog(seconds: int = PATIENCE) -> Iterator[None]:
    """End what does not end by itself, with the stack that shows where it was."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise StuckError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def diagnose(*words: str) -> tuple[int, str]:
    """Run a command line; only findings may come of it, and no defect of dfsc."""
    output = io.StringIO()
    with watchdog(), redirect_stdout(output), redirect_stderr(output):
        code = run(words)
    text = output.getvalue()
    assert code in (0, 1, 2), text[:2000]
    assert "DFS900" not in text, text[:2000]
    assert "Traceback" not in text, text[:2000]
    if code:
        assert re.search(r"error\[DFS|Error: |\"code\": \"DFS", text), text[:2000]
    return code, text
