"""`dfsc check`: everything that can be found without the model itself."""

from __future__ import annotations

from collections.abc import Mapping

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.given_files import given_by_file
from dynaflow_dsl.cli.options import Given, fact_option, parameter_option
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.running import chosen_files, current_project, going_on
from dynaflow_dsl.cli.schedules import read_schedule
from dynaflow_dsl.cli.snapshots import graph_option, note_other_model, read_snapshot
from dynaflow_dsl.resolve.model import Scalar


@click.command("check")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@graph_option
@parameter_option
@fact_option
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    paths: tuple[str, ...],
    graph: str | None,
    parameters: Mapping[str, str],
    facts: Mapping[str, Scalar],
) -> int:
    """Check schedule files, or all below a folder; those of the project by default.

    With a snapshot of the model (see `dfsc trace`) selectors, splits and timelines are
    checked and proved; without one, text and names alone. Runs no code of a schedule
    or a model.
    """
    project = current_project(reporter)
    files = chosen_files(project, paths)
    given = given_by_file(Given(parameters, facts), project, files)
    for path in files:
        with going_on(reporter, path):
            _check(reporter, path, graph, given[path])
    return reporter.code


def _check(reporter: Reporter, path: str, graph: str | None, given: Given) -> None:
    file = read_schedule(reporter, path, given.parameters)
    if file is None:
        return
    snapshot = read_snapshot(reporter, path, graph)
    if snapshot.model is not None:
        reporter.show(note_other_model(file, snapshot.path, snapshot.model))
        checked = pipeline.check_schedules(file, snapshot.model, given.facts)
        reporter.show(checked.diagnostics)
        if checked.ok:
            reporter.say(f"{path}: fine, with {snapshot.path.as_posix()}")
    elif not snapshot.broken:
        required = pipeline.require_facts(file, None, given.facts)
        reporter.show(required.diagnostics)
        if not required.ok:
            return
        if not file.schedules:
            reporter.say(f"{path}: text and names are fine")
            return
        reporter.say(
            f"{path}: text and names are fine; `dfsc trace {path}` makes the snapshot "
            "that selectors, splits and timelines are checked with"
        )
