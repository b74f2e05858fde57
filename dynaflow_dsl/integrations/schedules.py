"""Files of which one schedule runs, by itself or chosen by a `select`."""

from __future__ import annotations

from dynaflow_dsl import pipeline
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Label
from dynaflow_dsl.resolve.model import ScheduleFile
from dynaflow_dsl.source import Span


def check_runs_one(file: ScheduleFile, path: str, code: str) -> None:
    """Refuse a file of which nobody knows which schedule a step runs.

    Raises DiagnosticError with a code of the caller's.
    """
    count = len(file.schedules)
    if file.select is not None or count == 1:
        return
    if count:
        first, second, *_ = file.schedules
        said = f"{path} has {count} schedules, and nothing chooses between them"
        place = Label(second.name_span, "another schedule")
        others = (Label(first.name_span, "the first one"),)
        way = "let a `select` choose between them, or give each a file"
        raise DiagnosticError([Diagnostic(code, said, place, others, helps=(way,))])
    source = pipeline.read_source(path).value
    raise DiagnosticError(
        [
            Diagnostic(
                code,
                f"{path} has no schedule",
                None if source is None else Label(Span(source, 0, 0), "in this file"),
                helps=("name a file with a schedule, which may import from this one",),
            )
        ]
    )
