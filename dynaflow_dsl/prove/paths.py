"""The chain of waits that orders two steps, found in the clocks of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from dynaflow_dsl.prove.machine import Machine, Step
from dynaflow_dsl.prove.memory import Access


def chain_of_waits(machine: Machine, earlier: Step, later: Step) -> str:
    """`attn[0] → mlp[0] (waits for it) → attn[1] (next on side)`; empty without one."""
    places = {(a.stream, a.time): step for step, a in machine.accesses.items()}
    goal = machine.accesses[earlier]
    towards: dict[Step, tuple[Step, str]] = {}
    queue = deque([later])
    while queue:
        here = queue.popleft()
        for stream, time, reason in _before(machine, machine.accesses[here], here):
            if time < machine.starts[earlier][stream]:
                continue
            step = places.get((stream, time))
            if step is None or step in towards or step == later:
                continue
            towards[step] = here, reason
            if step == earlier:
                return _in_words(machine, goal, earlier, later, towards)
            queue.append(step)
    return ""


def _before(
    machine: Machine, access: Access, step: Step
) -> Iterator[tuple[str, int, str]]:
    """What a step comes directly after: the last of each stream that it waited for."""
    for stream, time in machine.starts[step].items():
        if time > 0:
            same = stream == access.stream
            yield stream, time, f"next on {stream}" if same else "waits for it"


def _in_words(
    machine: Machine,
    goal: Access,
    earlier: Step,
    later: Step,
    towards: dict[Step, tuple[Step, str]],
) -> str:
    words, step = [goal.label], earlier
    while step != later:
        step, reason = towards[step]
        words.append(f"{machine.accesses[step].label} ({reason})")
    return " → ".join(words)
