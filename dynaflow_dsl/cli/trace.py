"""`dfsc trace`: write down a model's graph, so that others can check against it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import click

from dynaflow_dsl.cli.files import (
    not_written,
    read_text,
    relative,
    snapshot_path,
    write_text,
)
from dynaflow_dsl.cli.models import load_model
from dynaflow_dsl.cli.options import (
    ChosenModel,
    choose_model,
    model_argument_option,
    write_arguments,
)
from dynaflow_dsl.cli.project import Project
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.running import current_project
from dynaflow_dsl.cli.schedules import read_schedule
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.graph.snapshot import (
    dump_snapshot,
    looks_like_snapshot,
    parse_snapshot,
)
from dynaflow_dsl.resolve.model import Scalar


@click.command("trace")
@click.argument("target")
@click.option(
    "-o",
    "output",
    metavar="G.json",
    help="Where to write; FILE.graph.json when TARGET is FILE.dfs.",
)
@model_argument_option
@click.option("--check", is_flag=True, help="Write nothing; say if G.json is stale.")
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    target: str,
    output: str | None,
    model_arguments: Mapping[str, Scalar],
    check: bool,
) -> int:
    """Trace a model and write its graph as a snapshot.

    TARGET is package.module:function or path/file.py:function, or a schedule file with
    a `model` line.
    """
    project = current_project(reporter)
    chosen = _choose(reporter, target, model_arguments, project)
    if chosen is None:
        return reporter.code
    if output is None and not target.endswith(".dfs"):
        raise click.UsageError("-o says where the snapshot is written: give -o G.json")
    path = Path(output) if output is not None else snapshot_path(target)
    name, stored = relative(path), read_text(path)
    if stored is not None and not looks_like_snapshot(stored):
        raise not_written(path, "it is not a snapshot", "choose another -o")
    loaded = load_model(reporter, chosen)
    if loaded is None:
        return reporter.code
    if check:
        words = ["dfsc", "trace", target, *write_arguments(None, model_arguments)]
        words += ["-o", name] if output is not None else []
        about = target if target.endswith(".dfs") else None
        reporter.show(_compare(name, stored, loaded.traced, words, about))
        return reporter.code
    write_text(path, dump_snapshot(loaded.traced))
    entries = [graph.entry for graph in loaded.traced.graphs]
    reporter.result(name, {"snapshot": name, "entries": entries})
    return reporter.code


def _choose(
    reporter: Reporter, target: str, arguments: Mapping[str, Scalar], project: Project
) -> ChosenModel | None:
    if not target.endswith(".dfs"):
        return ChosenModel(target, arguments, None)
    settings = project.settings(target)
    file = read_schedule(reporter, target, settings.given.parameters)
    if file is None:
        return None
    return choose_model(file, target, settings.model, arguments, settings.arguments)


def _digests(traced: TracedModel) -> dict[str, str]:
    """What each entry computes, wherever in the model's code that stands."""
    return {graph.entry: graph_digest(graph) for graph in traced.graphs}


def _compare(
    name: str,
    stored: str | None,
    current: TracedModel,
    repair: Sequence[str],
    about: str | None,
) -> tuple[Diagnostic, ...]:
    if stored == dump_snapshot(current):
        return ()
    code, state = "DFS501", "is missing"
    if stored is not None:
        known = parse_snapshot(stored, name).value
        if known is None:
            state = "cannot be read"
        elif known.graphs != current.graphs and _digests(known) == _digests(current):
            state = "is stale: lines of the model's code that it names have changed"
        elif known.graphs != current.graphs:
            code, state = "DFS502", "is stale: the model's graph changed"
        else:
            different = [
                item.name
                for item in fields(current)
                if getattr(known, item.name) != getattr(current, item.name)
            ]
            state = f"is stale: it has another {' and '.join(different) or 'layout'}"
    helps = (f"run `{shlex.join(repair)}`",)
    message = f"{name} {state}"
    return (Diagnostic(code=code, message=message, helps=helps, about=about),)
