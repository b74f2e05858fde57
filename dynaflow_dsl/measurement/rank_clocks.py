"""How far the clocks of ranks are apart.

Profilers give times of the wall clock. Ranks of one machine share it: nothing is
measured there. Between machines, a rank of each asks rank 0 for its time, many times;
the answer belongs to the middle of a round trip, and the shortest one tells best
(Cristian, "Probabilistic clock synchronization", 1989).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from dynaflow_dsl.measurement.rounds import Tell
from dynaflow_dsl.runtime.groups import running_ranks

ROUND_TRIPS = 200


@dataclass(frozen=True, slots=True)
class RankClock:
    """The wall clock of one rank; times in nanoseconds.

    `ahead` is how far it is ahead of that of rank 0, and `doubt` how far that may be
    wrong; both are 0 on the machine of rank 0.
    """

    machine: str
    ahead: int = 0
    doubt: int = 0


def this_machine() -> str:
    """What tells the machine apart whose clock this process reads.

    Containers have names of their own, and share the kernel with its clock.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return socket.gethostname()


def compare_clocks(
    tell: Tell,
    machine: str,
    now: Callable[[], int] = time.time_ns,
) -> list[RankClock]:
    """The clocks of all ranks, in their order: a collective of all of them.

    Without a process group that of this one alone. `tell` brings the words of each rank
    to all; `now` is the wall clock in nanoseconds.
    """
    machines: list[str] = tell(machine)
    if len(machines) == 1:
        return [RankClock(machine)]
    rank, _ = running_ranks()
    mine = RankClock(machine)
    leaders = [
        machines.index(other)
        for other in dict.fromkeys(machines)
        if other != machines[0]
    ]
    for leader in leaders:
        if rank == 0:
            _answer(leader, now)
        elif rank == leader:
            ahead, doubt = _ask(now)
            mine = RankClock(machine, ahead, doubt)
    measured: list[RankClock] = tell(mine)
    return [measured[machines.index(other)] for other in machines]


def _answer(asking: int, now: Callable[[], int]) -> None:
    word = torch.zeros(1, dtype=torch.int64)
    for _ in range(ROUND_TRIPS):
        dist.recv(word, asking)
        word[0] = now()
        dist.send(word, asking)


def _ask(now: Callable[[], int]) -> tuple[int, int]:
    """How far this clock is ahead of rank 0's, and half the round trip that says so."""
    word = torch.zeros(1, dtype=torch.int64)
    best: tuple[int, int] | None = None
    for _ in range(ROUND_TRIPS):
        begin = now()
        dist.send(word, 0)
        dist.recv(word, 0)
        end = now()
        trip = end - begin
        if best is None or trip < best[0]:
            best = trip, begin + trip // 2 - int(word[0])
    assert best is not None
    return best[1], (best[0] + 1) // 2
