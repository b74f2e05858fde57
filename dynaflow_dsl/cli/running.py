"""Which files a command is about, and how it goes on after one that fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from dynaflow_dsl.cli.defects import internal_error
from dynaflow_dsl.cli.files import schedule_files
from dynaflow_dsl.cli.project import Project, find_project
from dynaflow_dsl.cli.report import OutputError, ReaderGoneError, Reporter
from dynaflow_dsl.diagnostics import DiagnosticError


def current_project(reporter: Reporter) -> Project:
    """The settings of the current folder; the reporter takes their output format.

    Raises DiagnosticError (DFS130).
    """
    project = find_project(Path.cwd())
    reporter.prefer(project.output_format)
    return project


def chosen_files(
    project: Project, paths: Sequence[str], default: str | None = None
) -> tuple[str, ...]:
    """The schedule files of a command line, else those that the project lists.

    `default` is what a command takes when there is neither.
    """
    if paths:
        return schedule_files(paths)
    if project.schedules is not None:
        return schedule_files(map(str, project.schedules))
    if default is not None:
        return schedule_files([default])
    raise click.UsageError(
        "name schedule files or folders, or list them in pyproject.toml:\n\n"
        '    [tool.dfsc]\n    schedules = ["schedules"]'
    )


@contextmanager
def going_on(reporter: Reporter, path: str) -> Iterator[None]:
    """Work on one file of several: whatever fails is shown, and the next one follows.

    Bad usage is not of one file and ends the command, and so does output that nobody
    takes any more.
    """
    reporter.about = path
    try:
        yield
    except DiagnosticError as error:
        reporter.show(error.diagnostics)
    except (click.ClickException, click.Abort, OutputError, ReaderGoneError):
        raise
    except Exception as error:
        reporter.show([internal_error(error)])
    finally:
        reporter.about = None
