"""`dfsc diff`: what changes between two schedule files, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import schedule_file
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.revisions import changed_files, read_revision, split_revision
from dynaflow_dsl.cli.running import current_project, going_on
from dynaflow_dsl.comparison import Comparison, compare
from dynaflow_dsl.comparison.render import as_data, as_markdown, as_text
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.imports import file_reader
from dynaflow_dsl.resolve import Reader, resolve
from dynaflow_dsl.resolve.findings import Names
from dynaflow_dsl.resolve.imports import imported_by, read_files
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import SyntaxTree, parse
from dynaflow_dsl.syntax.model import PartGroup

Form: TypeAlias = Literal["text", "markdown", "json"]


@dataclass(frozen=True, slots=True)
class Version:
    """One file at one time: its statements, the groups it imports, and the digest of
    its meaning, None when it has mistakes.
    """

    tree: SyntaxTree
    groups: dict[str, PartGroup]
    digest: str | None


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
    current_project(reporter)
    if form == "json" and reporter.format != "sarif":
        reporter.format = "json"
    if revision is None:
        if len(paths) != 2:
            raise click.UsageError("name two files, or give --rev and files to compare")
        old, new = (_named(reporter, path) for path in paths)
        if old is not None and new is not None:
            _show(reporter, _compare(old, new), form)
        return reporter.code
    changed = changed_files(revision, paths)
    for each in changed:
        with going_on(reporter):
            before = after = None
            if each.old is not None:
                before = _version(reporter, *read_revision(revision, each.old))
            if each.new is not None:
                after = _named(reporter, each.new)
            read = [each.old is None or before, each.new is None or after]
            if all(read):
                _show(reporter, _compare(before, after), form)
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
    digest = resolved.value.digest if resolved.value is not None else None
    return Version(parsed.value, dict(imported.groups), digest)


def _compare(old: Version | None, new: Version | None) -> Comparison:
    """None stands for a file that does not exist."""
    digests = [version.digest if version else None for version in (old, new)]
    return compare(
        old.tree if old else None,
        new.tree if new else None,
        old.groups if old else {},
        new.groups if new else {},
        same_digest=digests[0] is not None and digests[0] == digests[1],
    )


def _show(reporter: Reporter, comparison: Comparison, form: Form) -> None:
    text = as_markdown(comparison) if form == "markdown" else as_text(comparison)
    reporter.result(text, as_data(comparison))
