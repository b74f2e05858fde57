"""Finding and reading the snapshot of a schedule file's model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from dynaflow_dsl.cli.files import read_text, snapshot_path
from dynaflow_dsl.cli.options import stored_name
from dynaflow_dsl.cli.report import Reporter
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Label, Severity
from dynaflow_dsl.graph import snapshot as snapshots
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.resolve.model import ScheduleFile

Function = TypeVar("Function", bound=Callable[..., Any])


def graph_option(function: Function) -> Function:
    """`--graph G.json`."""
    return click.option(
        "--graph",
        metavar="G.json",
        help="Snapshot of the model; the default for FILE.dfs is FILE.graph.json.",
    )(function)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was found: `model` is None when there is no snapshot or it is `broken`."""

    path: Path
    model: TracedModel | None
    broken: bool = False


def read_snapshot(reporter: Reporter, schedule: str, chosen: str | None) -> Snapshot:
    """The chosen snapshot, else the one beside the schedule file, if there is one."""
    path = Path(chosen) if chosen is not None else snapshot_path(schedule)
    text = read_text(path)
    if text is None:
        if chosen is not None:
            message = f"{chosen} cannot be read: there is no such file"
            raise DiagnosticError([Diagnostic("DFS113", message)])
        return Snapshot(path, None)
    parsed = snapshots.parse_snapshot(text, path.as_posix())
    reporter.show(parsed.diagnostics)
    return Snapshot(path, parsed.value if parsed.ok else None, broken=not parsed.ok)


def note_other_model(
    file: ScheduleFile, path: Path, model: TracedModel
) -> tuple[Diagnostic, ...]:
    """A warning when the snapshot is of another target than the file's `model` line."""
    reference = file.model
    if reference is None:
        return ()
    named = (stored_name(reference.target), dict(reference.arguments))
    traced = (model.target, dict(model.arguments))
    if named == traced:
        return ()
    made_from = " ".join([traced[0], *(f"{k}={v}" for k, v in traced[1].items())])
    return (
        Diagnostic(
            code="DFS502",
            message=f"{path.as_posix()} is a snapshot of another model",
            primary=Label(reference.span, f"the snapshot is of {made_from}"),
            helps=(f"run `dfsc trace {reference.span.source.name}`",),
            severity=Severity.WARNING,
        ),
    )
