"""`dfsc show`: what a schedule will do, in the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.bind import bind
from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.cli.files import schedule_file
from dynaflow_dsl.cli.options import Given, fact_option, parameter_option
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.running import current_project
from dynaflow_dsl.cli.schedules import read_schedule
from dynaflow_dsl.cli.snapshots import (
    Snapshot,
    graph_option,
    note_other_model,
    read_snapshot,
)
from dynaflow_dsl.resolve.model import Scalar, Schedule, ScheduleFile
from dynaflow_dsl.views.data import parts_data, schedule_data
from dynaflow_dsl.views.gantt import gantt
from dynaflow_dsl.views.parts import parts
from dynaflow_dsl.views.select import select_data, select_text
from dynaflow_dsl.views.windows import heading, windows


@click.command("show")
@click.argument("file")
@click.option(
    "--windows",
    "views",
    flag_value="windows",
    multiple=True,
    help="The timeline, one line per window (the default).",
)
@click.option(
    "--parts",
    "views",
    flag_value="parts",
    multiple=True,
    help="The operations of each part; needs a snapshot.",
)
@click.option(
    "--gantt",
    "views",
    flag_value="gantt",
    multiple=True,
    help="A time chart of the streams.",
)
@graph_option
@parameter_option
@fact_option
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    file: str,
    views: tuple[str, ...],
    graph: str | None,
    parameters: Mapping[str, str],
    facts: Mapping[str, Scalar],
) -> int:
    """Show the timeline or the parts of a schedule file.

    What it requires of the model is decided as `check` does, with -F before the facts
    of the snapshot.
    """
    chosen = list(dict.fromkeys(views)) or ["windows"]
    if len(chosen) > 1:
        several = " and ".join(f"--{each}" for each in chosen)
        raise click.UsageError(f"{several} are different views: give one of them")
    (view,) = chosen
    project = current_project(reporter)
    reporter.about = path = schedule_file(file)
    given = Given(parameters, facts).over(project.settings(path).given)
    schedules = read_schedule(reporter, path, given.parameters)
    if schedules is None:
        return reporter.code
    snapshot = read_snapshot(reporter, path, graph)
    if snapshot.broken:
        return reporter.code
    if given.facts or snapshot.model is not None:
        decided = pipeline.require_facts(schedules, snapshot.model, given.facts)
        reporter.show(decided.diagnostics)
    bindings = _bindings(reporter, snapshot, schedules, given.facts, view)
    if view == "parts" and not bindings:
        raise click.UsageError(
            f"the parts of {path} need its model: "
            f"`dfsc trace {path}` makes the snapshot"
        )
    for schedule in schedules.schedules:
        _show(reporter, schedule, bindings.get(schedule.name, ()), view)
    return reporter.code


def _bindings(
    reporter: Reporter,
    snapshot: Snapshot,
    file: ScheduleFile,
    facts: Mapping[str, Scalar],
    view: str,
) -> dict[str, tuple[Binding, ...]]:
    """Each schedule bound to the entries that run it; empty without a snapshot.

    Shows what a `select` chooses on the way.
    """
    selected = None
    if snapshot.model is not None:
        reporter.show(note_other_model(file, snapshot.path, snapshot.model))
        chosen = pipeline.select_schedules(file, snapshot.model, facts)
        reporter.show(chosen.diagnostics)
        selected = chosen.value
    if file.select is not None and view != "parts":
        selection = selected.selection if selected is not None else None
        text = select_text(file.select, selection)
        reporter.result(text, select_data(file.select, selection))
    if selected is None:
        return {}
    found: dict[str, tuple[Binding, ...]] = {}
    for schedule in file.schedules:
        entries = [graph for other, graph in selected.pairs if other is schedule]
        results = [bind(schedule, entry) for entry in entries]
        for result in results:
            reporter.show(result.diagnostics)
        found[schedule.name] = tuple(
            result.value for result in results if result.value is not None
        )
    return found


def _show(
    reporter: Reporter, schedule: Schedule, bindings: tuple[Binding, ...], view: str
) -> None:
    counts = {
        tuple(len(section.iterations) for section in binding.sections)
        for binding in bindings
    }
    iterations = counts.pop() if len(counts) == 1 else None
    match view:
        case "parts":
            for binding in bindings:
                reporter.result(_parts(schedule, binding), parts_data(binding))
        case "gantt":
            width = shutil.get_terminal_size((88, 24)).columns
            chart = gantt(schedule, iterations, width)
            text = f"{heading(schedule)}\n\n{chart}"
            reporter.result(text, schedule_data(schedule, iterations))
        case _:
            text = windows(schedule, iterations)
            reporter.result(text, schedule_data(schedule, iterations))


def _parts(schedule: Schedule, binding: Binding) -> str:
    return f"{schedule.name}, entry {binding.graph.entry}\n\n{parts(binding)}"
