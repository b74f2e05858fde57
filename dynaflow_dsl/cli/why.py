"""`dfsc why`: what each wait of a step is for."""

from __future__ import annotations

from collections.abc import Mapping

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import schedule_file
from dynaflow_dsl.cli.options import Given, fact_option, parameter_option
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.running import current_project
from dynaflow_dsl.cli.schedules import read_schedule
from dynaflow_dsl.cli.snapshots import graph_option, note_other_model, read_snapshot
from dynaflow_dsl.resolve.model import Scalar
from dynaflow_dsl.views.why import explain, nearest, why_data, why_text


@click.command("why")
@click.argument("file")
@click.argument("step")
@graph_option
@parameter_option
@fact_option
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    file: str,
    step: str,
    graph: str | None,
    parameters: Mapping[str, str],
    facts: Mapping[str, Scalar],
) -> int:
    """Explain what a step of a schedule waits for, and what it needs no wait for.

    STEP is called as in the file: 'attn[0]', or 'attn' for all of its pieces. Needs a
    snapshot of the model (see `dfsc trace`).
    """
    project = current_project(reporter)
    reporter.about = path = schedule_file(file)
    given = Given(parameters, facts).over(project.settings(path).given)
    schedules = read_schedule(reporter, path, given.parameters)
    if schedules is None:
        return reporter.code
    snapshot = read_snapshot(reporter, path, graph)
    if snapshot.broken:
        return reporter.code
    if snapshot.model is None:
        raise click.UsageError(
            f"the waits of {path} follow from its model: "
            f"`dfsc trace {path}` makes the snapshot"
        )
    reporter.show(note_other_model(schedules, snapshot.path, snapshot.model))
    checked = pipeline.check_schedules(schedules, snapshot.model, given.facts)
    reporter.show(checked.diagnostics)
    if checked.value is None:
        return reporter.code
    found = False
    for proved in checked.value.plans:
        plan = proved.plan
        runs = explain(plan, step)
        if runs:
            found = True
            name = f"{plan.binding.schedule.name}, entry {plan.binding.graph.entry}"
            data = {
                "schedule": plan.binding.schedule.name,
                "entry": plan.binding.graph.entry,
                "runs": why_data(runs),
            }
            reporter.result(f"{name}\n\n{why_text(plan, runs)}\n", data)
    if not found:
        listed = ", ".join(
            dict.fromkeys(
                name
                for proved in checked.value.plans
                for name in nearest(proved.plan, step)
            )
        )
        raise click.UsageError(f"{path} has no step '{step}'; there are: {listed}")
    return reporter.code
