"""A judge of generated steps, which runs their text and nothing of the compiler.

The queues that the text fills are worked off in all orders. A kernel that finds
anything but what it finds in the order of issue shows a race, or memory that was given
away too early.
"""

from __future__ import annotations

from typing import Any

from tests.simulator.orders import Orders, contents
from tests.simulator.queues import Recording
from tests.simulator.recording import ModuleText


def judge(
    text: str,
    executor: int = 0,
    *,
    persistent: tuple[str, ...] = (),
    exhaustive: int = 0,
) -> list[str]:
    """What is wrong with the step of a module; `persistent` inputs count as results.

    All orders are visited if queues can stand in no more ways than `exhaustive`; else
    each kernel is starved once.
    """
    module = ModuleText(text)
    chosen = module.classes[executor]
    recording = module.record(chosen, persistent=persistent)
    if recording.error:
        return [recording.error]
    faults = (
        []
        if _result(recording) == _sequential(module, chosen, persistent)
        else ["the results are not those of the parts in program order"]
    )
    orders = Orders(recording)
    explored = orders.all(exhaustive)
    found = orders.starving() if explored is None else explored.faults
    return list(dict.fromkeys([*faults, *(f"{f.kind}: {f.text}" for f in found)]))


def _sequential(module: ModuleText, executor: Any, persistent: tuple[str, ...]) -> Any:
    recording = module.record(executor, "sequential", persistent=persistent)
    assert not recording.error, recording.error
    return _result(recording)


def _result(recording: Recording) -> Any:
    (end,) = (n for n, kernel in recording.kernels() if kernel.role == "end")
    return contents(recording)[end]
