"""What changes of a schedule do to its plan: waits, overlap, and what is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from dynaflow_dsl.comparison.model import Effect
from dynaflow_dsl.plan.model import Call, Plan, Record, Wait
from dynaflow_dsl.prove import ProvedPlan
from dynaflow_dsl.resolve.model import Schedule
from dynaflow_dsl.resolve.steps import step_label

# Steps that one sentence names.
MOST_NAMED = 4

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What can be said of a plan: steps that wait for others, steps side by side, and
    variables that are kept to the end of the step.
    """

    waits: frozenset[Pair]
    beside: frozenset[Pair]
    held: frozenset[str]


def effects(old: Sequence[ProvedPlan], new: Sequence[ProvedPlan]) -> tuple[Effect, ...]:
    """What follows for the schedules that both files have, each sentence once.

    Steps are compared by their names, so nothing is said of a schedule whose parts or
    pieces have other ones.
    """
    before = {_key(each.plan): each for each in old}
    found: list[Effect] = []
    for proved in new:
        earlier = before.get(_key(proved.plan))
        if earlier is None or _steps(earlier.plan) != _steps(proved.plan):
            continue
        name = proved.plan.binding.schedule.name
        for sentence in _sentences(_facts(earlier), _facts(proved)):
            found.append(Effect(f"schedule {name}", sentence))
    return tuple(dict.fromkeys(found))


def _key(plan: Plan) -> Pair:
    return plan.binding.schedule.name, plan.binding.graph.entry


def _steps(plan: Plan) -> tuple[frozenset[str], int]:
    schedule = plan.binding.schedule
    return frozenset(part.name for part in schedule.parts), schedule.pieces


def _sentences(old: _Facts, new: _Facts) -> Iterator[str]:
    yield from _waits(new.waits - old.waits, "more")
    yield from _waits(old.waits - new.waits, "less")
    yield from _listed("claimed to overlap now", _both(new.beside - old.beside))
    yield from _listed("no longer claimed to overlap", _both(old.beside - new.beside))
    yield from _listed("kept to the end of the step now", _quoted(new.held - old.held))
    yield from _listed("no longer kept to the end", _quoted(old.held - new.held))


def _waits(pairs: Collection[Pair], word: str) -> Iterator[str]:
    number = "one wait" if len(pairs) == 1 else f"{len(pairs)} waits"
    named = [f"`{step}` for `{maker}`" for step, maker in sorted(pairs)]
    yield from _listed(f"{number} {word}", named)


def _both(pairs: Collection[Pair]) -> list[str]:
    return [f"`{one}` and `{other}`" for one, other in sorted(pairs)]


def _quoted(names: Collection[str]) -> list[str]:
    return [f"`{name}`" for name in sorted(names)]


def _listed(what: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        more = len(items) - MOST_NAMED
        rest = f" and {more} more" if more > 0 else ""
        yield f"{what}: {', '.join(items[:MOST_NAMED])}{rest}"


def _facts(proved: ProvedPlan) -> _Facts:
    schedule = proved.plan.binding.schedule
    return _Facts(
        frozenset(_waiting(proved.plan)),
        frozenset(_beside(schedule)),
        frozenset(proved.held),
    )


def _waiting(plan: Plan) -> Iterator[Pair]:
    """Which step waits for which, the iteration left aside."""
    makers: dict[str, str] = {}
    for block in plan.step.blocks:
        last: dict[str, str] = {}
        for statement in block.statements:
            match statement:
                case Call(stream=stream, label=label):
                    last[stream] = label
                case Record(event, stream) if stream in last:
                    makers.setdefault(event, _in_any_iteration(last[stream]))
    steps = {
        _in_any_iteration(step_label(step, plan.binding.schedule.piece_names))
        for section in plan.binding.schedule.sections
        for window in section.windows
        for run in window.runs
        for step in run.steps
    }
    for block in plan.step.blocks:
        for statement in block.statements:
            match statement:
                case Wait(event=event, label=label) if event in makers:
                    pair = _in_any_iteration(label), makers[event]
                    if steps.issuperset(pair):
                        yield pair


def _beside(schedule: Schedule) -> Iterator[Pair]:
    for section in schedule.sections:
        for window in section.windows:
            for one, other in combinations(window.runs, 2):
                for pair in product(one.steps, other.steps):
                    first, second = sorted(
                        step_label(step, schedule.piece_names) for step in pair
                    )
                    yield first, second


def _in_any_iteration(label: str) -> str:
    return label.removeprefix("prev.")
