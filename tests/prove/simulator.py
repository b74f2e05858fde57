"""An independent judge of generated steps: every order that streams may run in.

It shares nothing with `plan` and `prove`, which reason with vector clocks: it runs the
queues that a recorded step has filled, with real contents, in many orders. A kernel
that reads anything but what it reads in the order of issue shows a race, or memory that
was given away too early.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.prove.recording import ModuleText
from tests.prove.stand_ins import Cell, Item, Kernel, Recording

Memory = dict[Cell, Any]


class Run:
    """Queues that are being worked off in some order."""

    def __init__(self, recording: Recording, expected: dict[int, Any] | None) -> None:
        self.recording, self.expected = recording, expected
        self.at = dict.fromkeys(recording.streams, 0)
        self.memory: Memory = {}
        self.reached: set[int] = set()
        self.seen: dict[int, Any] = {}
        self.faults: list[str] = []

    def head(self, stream: str) -> Item | None:
        queue = self.recording.queues[stream]
        return queue[self.at[stream]] if self.at[stream] < len(queue) else None

    def ready(self) -> list[Item]:
        heads = (self.head(stream) for stream in self.recording.streams)
        return [
            item
            for item in heads
            if item and (item.kind != "wait" or item.work in self.reached)
        ]

    def work_off(self, item: Item) -> None:
        self.at[item.stream] += 1
        if isinstance(item.work, Kernel):
            self._run(item, item.work)
        elif item.kind == "record":
            self.reached.add(item.work)

    def _run(self, item: Item, kernel: Kernel) -> None:
        read = tuple(self.memory.get(cell) for cell in kernel.reads)
        self.seen[item.number] = read
        if self.expected is not None and read != self.expected[item.number]:
            self.faults.append(f"{kernel.label} reads what it should not")
        if kernel.ends_step and any(
            isinstance(left.work, Kernel)
            and not left.work.reuse
            and left.number < item.number
            for stream in self.recording.streams
            for left in self.recording.queues[stream][self.at[stream] :]
        ):
            self.faults.append("the step ends before all of its work is done")
        made = []
        for cell, token, sources in kernel.writes:
            contents = tuple(self.memory.get(source) for source in sources)
            made.append(
                (cell, contents[0] if token == ("same",) else hash((token, contents)))
            )
        self.memory.update(made)


def in_order(recording: Recording) -> Run:
    """The order of issue, which defines what every kernel should read."""
    run = Run(recording, None)
    items = [item for queue in recording.queues.values() for item in queue]
    for item in sorted(items, key=lambda item: item.number):
        run.work_off(item)
    return run


def starving(recording: Recording, expected: dict[int, Any]) -> Iterator[str]:
    """For each kernel, everything else as far as it gets without it.

    Two conflicting kernels that nothing orders swap places when the one that is issued
    first is starved, so this alone finds every race. Reuse of memory is never issued
    first: nothing has a name for that memory afterwards. Stops at the first fault.
    """
    for victim in (i for queue in recording.queues.values() for i in queue):
        if not isinstance(victim.work, Kernel) or victim.work.reuse:
            continue
        run = Run(recording, expected)
        while ready := run.ready():
            others = [item for item in ready if item is not victim]
            run.work_off((others or ready)[0])
        if run.faults:
            yield from run.faults
            return


def at_random(
    recording: Recording, expected: dict[int, Any], orders: int, seed: int
) -> Iterator[str]:
    random = Random(seed)
    for _ in range(orders):
        run = Run(recording, expected)
        while ready := run.ready():
            run.work_off(random.choice(ready))
        yield from run.faults


def all_orders(
    recording: Recording, expected: dict[int, Any], limit: int
) -> list[str] | None:
    """Every order, where states that agree are visited once; None above the limit."""
    start = Run(recording, expected)
    waiting, visited = [start], set()
    while waiting:
        run = waiting.pop()
        state = (tuple(run.at.values()), frozenset(run.memory.items()))
        if state in visited:
            continue
        visited.add(state)
        if len(visited) > limit:
            return None
        if run.faults:
            return run.faults
        for item in run.ready():
            fork = Run(recording, expected)
            fork.at, fork.memory = dict(run.at), dict(run.memory)
            fork.reached = set(run.reached)
            fork.work_off(item)
            waiting.append(fork)
    return []


def judge(
    text: str,
    executor: int = 0,
    *,
    persistent: tuple[str, ...] = (),
    exhaustive: int = 0,
    orders: int = 3,
) -> list[str]:
    """What is wrong with the step of a module; `persistent` inputs count as results.

    With `exhaustive`, all orders are visited if there are no more states than that.
    """
    module = ModuleText(text)
    chosen = module.classes[executor]
    recording = module.record(chosen, persistent=persistent)
    if recording.error:
        return [recording.error]
    expected = in_order(recording)
    faults = (
        []
        if _result(expected) == _sequential(module, chosen, persistent)
        else ["the results are not those of the parts in program order"]
    )
    if exhaustive:
        found = all_orders(recording, expected.seen, exhaustive)
        if found is not None:
            return faults + found
    faults += starving(recording, expected.seen)
    if not faults:
        faults += at_random(recording, expected.seen, orders, seed=0)
    return list(dict.fromkeys(faults))


def _sequential(module: ModuleText, executor: Any, persistent: tuple[str, ...]) -> Any:
    recording = module.record(executor, "sequential", persistent=persistent)
    assert not recording.error, recording.error
    return _result(in_order(recording))


def _result(run: Run) -> Any:
    ends = [
        item
        for queue in run.recording.queues.values()
        for item in queue
        if isinstance(item.work, Kernel) and item.work.ends_step
    ]
    return run.seen[ends[0].number]
