"""Compiles parts while kernels of other parts are still being compiled."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from dynaflow_dsl.runtime.inductor import apart, waiting_for_kernels

Result = TypeVar("Result")


def interleaved(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """What the tasks give, in their order.

    Inductor writes the code of a part in this process and has its kernels compiled by
    others. Where it would wait for them, the next task begins: inside the one that
    waits, on the same stack, so that what Inductor sets for one compilation is set back
    in order. Raises what the first of the tasks raises that fails; later ones may then
    not have run.
    """
    pending = deque(enumerate(tasks))
    results: dict[int, Result] = {}
    failures: dict[int, Exception] = {}

    def begin() -> None:
        position, task = pending.popleft()
        try:
            results[position] = task()
        except Exception as error:  # it is no failure of the task that waits
            failures[position] = error

    def meanwhile() -> None:
        while pending and not failures and _has_room():
            with apart():
                begin()

    with waiting_for_kernels(meanwhile):
        while pending and not failures:
            begin()
    if failures:
        raise failures[min(failures)]
    return [results[position] for position in range(len(tasks))]


def _has_room() -> bool:
    """Whether half of the stack is left: a compilation needs some hundred frames."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth < sys.getrecursionlimit() // 2
