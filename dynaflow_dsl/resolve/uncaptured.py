"""What a `select` leaves of `capture` lines: sizes that it gives to another line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.choices import EntryChoices, Selection
from dynaflow_dsl.resolve.values import evaluate_condition
from dynaflow_dsl.source import Span

# Combinations of captured sizes that are looked at; with more, nothing is said.
MOST_STEPS = 4096


def never_given(
    selection: Selection, schedules: Sequence[model.Schedule]
) -> Iterator[Diagnostic]:
    """Warnings about captured sizes that no schedule of their text ever gets.

    The lines of a `select` take arguments, so one text may stand for several schedules:
    a size has an effect when any of them is given it.
    """
    lines: dict[Span, model.Capture] = {}
    given: dict[Span, set[int]] = defaultdict(set)
    for schedule in schedules:
        sizes = [line.sizes for line in schedule.captures]
        if prod(map(len, sizes)) > MOST_STEPS:
            return
        names = [line.dimension for line in schedule.captures]
        steps = [dict(zip(names, each, strict=True)) for each in product(*sizes)]
        got = [step for step in steps if _gets(selection, schedule.name, step)]
        for line in schedule.captures:
            place = replace(line.span, used_at=None)
            lines[place] = line
            given[place].update(step[line.dimension] for step in got)
    for span, line in lines.items():
        idle = [size for size in line.sizes if size not in given[span]]
        if idle:
            yield _never_given(selection.select, line.dimension, span, idle)


def _gets(selection: Selection, name: str, step: Mapping[str, int]) -> bool:
    """Whether a step of these sizes is captured by the schedule, in any entry that has
    them: it runs the schedule, or `sequential`, which all of them capture.
    """
    return any(
        selection.select.lines[_line(entry, step)].schedule in (name, None)
        for entry in selection.entries
        if step.keys() == set(entry.sizes)
    )


def _line(entry: EntryChoices, step: Mapping[str, int]) -> int:
    """The first line that holds for a step."""
    return next(
        chosen.line
        for chosen in entry.lines
        if chosen.condition is None or evaluate_condition(chosen.condition, [], step)
    )


def _never_given(
    select: model.Select, dimension: str, place: Span, idle: Sequence[int]
) -> Diagnostic:
    listed = ", ".join(map(str, idle))
    return Diagnostic(
        "DFS319",
        f"select '{select.name}' gives no step with {dimension} = {listed} to "
        "this schedule",
        Label(place, "captured, and never used"),
        (Label(select.name_span, "gives it to another line"),),
        helps=(f"remove {listed} from the list, or let a line choose it",),
        severity=Severity.WARNING,
    )
