"""Reading a schedule file, as the first step of every command that takes one."""

from __future__ import annotations

from collections.abc import Mapping

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.report import Reporter
from dynaflow_dsl.resolve.model import ScheduleFile


def read_schedule(
    reporter: Reporter, path: str, parameters: Mapping[str, str] | None = None
) -> ScheduleFile | None:
    """What a file says, None after errors were shown."""
    read = pipeline.read_schedule(path, parameters)
    reporter.show(read.diagnostics)
    return read.value if read.ok else None
