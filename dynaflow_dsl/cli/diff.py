"""`dfsc diff`: what changes between two schedule files, in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import read_text, schedule_file, snapshot_path
from dynaflow_dsl.cli.project import Project
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.revisions import changed_files, read_revision, split_revision
from dynaflow_dsl.cli.running import current_project, going_on
from dynaflow_dsl.comparison import Comparison, Effect, compare, effects
from dynaflow_dsl.comparison.render import as_data, as_markdown, as_text
from dynaflow_dsl.diagnostics import Diagnostic, has_errors
from dynaflow_dsl.graph.reader import parse_snapshot
from dynaflow_dsl.imports import file_reader
from dynaflow_dsl.resolve import Reader, resolve
from dynaflow_dsl.resolve.findings import Names
from dynaflow_dsl.resolve.imports import imported_by, read_files
from dynaflow_dsl.resolve.model import ScheduleFile
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import SyntaxTree, parse
from dynaflow_dsl.syntax.model import PartGroup

Form: TypeAlias = Literal["text", "markdown", "json"]


@dataclass(frozen=True, slots=True)
class Version:
    """One file at one time: its statements, the groups it imports, and its meaning,
    None when it has mistakes.
    """

    tree: SyntaxTree
    groups: dict[str, PartGroup]
    file: ScheduleFile | None


@click.command("diff")
@click.argument("paths", nargs=-1, metavar="[OLD NEW | PATH...]")
@click.option(
    "--rev",
    "revision",
    metavar="REV",
    help="Compare the files with a revision of git, such as HEAD~1 or main; without "
    "PATH all below this folder that differ.",
)
@click.option(
    "--as",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="How changes are written; markdown is for comments on pull requests.",
)
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter, paths: tuple[str, ...], revision: str | None, form: Form
) -> int:
    """Say in words what changes from one schedule file to another.

    OLD and NEW are files, or REV:FILE for a file of a revision of git. Layout and
    comments are no change. The exit code is 0 whether or not anything changed.
    """
    project = current_project(reporter)
    if form == "json" and reporter.format != "sarif":
        reporter.format = "json"
    if revision is None:
        if len(paths) != 2:
            raise click.UsageError("name two files, or give --rev and files to compare")
        old, new = (_named(reporter, path) for path in paths)
        if old is not None and new is not None:
            _show(reporter, _compare(old, new, project), form)
        return reporter.code
    changed = changed_files(revision, paths)
    for each in changed:
        with going_on(reporter, each.new or each.old or ""):
            before = after = None
            if each.old is not None:
                before = _version(reporter, *read_revision(revision, each.old))
            if each.new is not None:
                after = _named(reporter, each.new)
            read = [each.old is None or before, each.new is None or after]
            if all(read):
                _show(reporter, _compare(before, after, project), form)
    if not changed:
        reporter.say(f"no schedule file differs from {revision}")
    return reporter.code


def _named(reporter: Reporter, name: str) -> Version | None:
    """The file of a name on the command line, None after errors were shown."""
    place = split_revision(name)
    if place is not None:
        return _version(reporter, *read_revision(*place))
    source = pipeline.read_source(schedule_file(name))
    reporter.show(source.diagnostics)
    if source.value is None:
        return None
    return _version(reporter, source.value, file_reader(source.value))


def _version(reporter: Reporter, source: Source, reader: Reader) -> Version | None:
    parsed = parse(source)
    reporter.show(parsed.diagnostics)
    if parsed.value is None or not parsed.ok:
        return None
    found: list[Diagnostic] = []
    files = read_files(parsed.value, reader, found)
    imported = imported_by(parsed.value, files, Names(found), found)
    resolved = resolve(parsed.value, reader)
    return Version(parsed.value, dict(imported.groups), resolved.value)


def _compare(old: Version | None, new: Version | None, project: Project) -> Comparison:
    """None stands for a file that does not exist."""
    files = [version.file if version else None for version in (old, new)]
    digests = [file.digest if file else None for file in files]
    found = compare(
        old.tree if old else None,
        new.tree if new else None,
        old.groups if old else {},
        new.groups if new else {},
        same_digest=digests[0] is not None and digests[0] == digests[1],
    )
    before, after = files
    if before is None or after is None or found.same_meaning or found.new is None:
        return found
    return _with_effects(found, before, after, project)


def _with_effects(
    found: Comparison, old: ScheduleFile, new: ScheduleFile, project: Project
) -> Comparison:
    """Also what follows for the plans, where the new file has a snapshot beside it."""
    path = snapshot_path(found.new or "")
    text = read_text(path)
    model = parse_snapshot(text, path.as_posix()).value if text is not None else None
    if model is None:
        return found
    facts = project.settings(found.new or "").given.facts
    before = pipeline.check_schedules(old, model, facts).value
    after = pipeline.check_schedules(new, model, facts)
    follows: tuple[Effect, ...] = ()
    if before is not None and after.value is not None:
        follows = effects(before.plans, after.value.plans)
    elif before is not None:
        errors = [each for each in after.diagnostics if has_errors([each])]
        first = errors[0]
        sentence = f"it is refused now, {first.code}: {first.message}"
        follows = (Effect("", sentence),)
    return replace(found, effects=follows, snapshot=path.as_posix())


def _show(reporter: Reporter, comparison: Comparison, form: Form) -> None:
    text = as_markdown(comparison) if form == "markdown" else as_text(comparison)
    reporter.result(text, as_data(comparison))
