"""Which calls of a kernel gave what its reference gave.

Where a kernel cannot run, on a CPU or for a dtype, it returns what its reference
returns. Comparing that with the text of a part says nothing of the kernel.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from dynaflow_dsl.runtime.kernels import Kernel

_CALL = Kernel.__call__.__code__


@dataclass(slots=True)
class _OpenCall:
    """A call of a kernel that has not returned, and what its reference returned."""

    frame: FrameType
    reference: CodeType | None
    results: list[object] = field(default_factory=list)


@dataclass(slots=True)
class Calls:
    """How many calls of kernels there were, and how many by their references."""

    all: int = 0
    by_reference: int = 0

    @property
    def without_kernel(self) -> bool:
        """Whether no call gave anything but what a reference gave."""
        return 0 < self.all == self.by_reference


@contextmanager
def watched_calls() -> Iterator[Calls]:
    """Count what kernels do that are called in a `with` statement, in this thread."""
    calls, opened = Calls(), list[_OpenCall]()

    def look(frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if event == "call" and code is _CALL:
            opened.append(_OpenCall(frame, _reference(frame.f_locals["self"])))
        elif event == "return" and opened:
            last = opened[-1]
            if frame is last.frame:
                opened.pop()
                calls.all += 1
                calls.by_reference += any(result is one for one in last.results)
            elif code is last.reference:
                last.results.append(result)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def _reference(kernel: Kernel) -> CodeType | None:
    if kernel.reference is None:
        return None
    return getattr(inspect.unwrap(kernel.reference), "__code__", None)
