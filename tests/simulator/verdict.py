"""What is wrong with a plan's step, by running it in every order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from dynaflow_dsl.plan.model import Plan, Program
from dynaflow_dsl.resolve.model import Step, Window
from tests.simulator.model import Instant, Model
from tests.simulator.orders import Explored, Fault, Orders
from tests.simulator.program import Simulated, Simulation, missing


@dataclass(frozen=True, slots=True)
class Verdict:
    """All faults; `complete` when every order was visited."""

    faults: tuple[Fault, ...]
    complete: bool = True

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(fault.kind for fault in self.faults)


def judge_plan(plan: Plan, limit: int = 20_000) -> Verdict:
    """Run a plan in every order; above `limit`, starve each kernel once instead.

    A captured plan is judged as it runs inside a graph as well: the same text runs at
    sizes that are not captured.
    """
    pieces = plan.binding.schedule.pieces
    found, explored, simulated = _run(plan, plan.step, plan.streams, pieces, limit)
    if explored is not None:
        found += said(plan, simulated, explored)
    if plan.binding.schedule.captures:
        found += _run(plan, plan.step, plan.streams, pieces, limit, captured=True)[0]
    found += _run(plan, plan.sequential, ("main",), 1, limit)[0]
    complete = explored is not None or bool(simulated.recording.error)
    return Verdict(tuple(dict.fromkeys(found)), complete)


def _run(
    plan: Plan,
    program: Program,
    streams: tuple[str, ...],
    pieces: int,
    limit: int,
    *,
    captured: bool = False,
) -> tuple[list[Fault], Explored | None, Simulated]:
    model = Model(plan.binding, pieces, plan.buffers)
    simulated = Simulation(model, streams, captured).run(program)
    found = [Fault(kind, text) for kind, text in simulated.faults]
    if simulated.recording.error:
        return found, None, simulated
    found += [Fault("missing", text) for text in missing(simulated, model)]
    if len(streams) == 1:
        # There is one order.
        return found, Explored(), simulated
    orders = Orders(simulated.recording)
    explored = orders.all(limit)
    found += orders.starving() if explored is None else explored.faults
    return found, explored, simulated


def said(plan: Plan, simulated: Simulated, explored: Explored) -> Iterator[Fault]:
    """What the schedule says of two steps: that they overlap, or which comes first."""
    pieces = plan.binding.schedule.pieces
    for section in plan.binding.sections:
        for p in range(len(section.iterations) + 1):
            for window in section.section.windows:
                for left, right in overlapping(window):
                    for pair in _pairs(left, right, p, pieces, simulated):
                        if frozenset(pair) not in explored.together:
                            yield Fault("overlap", f"{left.part} | {right.part}")
                for step in (step for run in window.runs for step in run.steps):
                    for earlier in step.after:
                        for pair in _pairs(earlier, step, p, pieces, simulated):
                            if (
                                pair[0] > pair[1]
                                or frozenset(pair) in explored.together
                            ):
                                yield Fault("after", f"{step.part}")


def overlapping(window: Window) -> Iterator[tuple[Step, Step]]:
    """Steps of a window in different runs."""
    for run, other in combinations(window.runs, 2):
        for left in run.steps:
            for right in other.steps:
                yield left, right


def _pairs(
    left: Step, right: Step, p: int, pieces: int, simulated: Simulated
) -> Iterator[tuple[int, int]]:
    """The items of two steps of a timeline in one pass over it."""
    for a in simulated.calls.get(_instant(left, p, pieces), ()):
        for b in simulated.calls.get(_instant(right, p, pieces), ()):
            yield a, b


def _instant(step: Step, p: int, pieces: int) -> Instant:
    return step.part, p - step.previous, step.piece if pieces > 1 else None
