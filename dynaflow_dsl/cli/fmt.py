"""`dfsc fmt`: schedule files in the one layout of the language."""

from __future__ import annotations

import difflib
import sys
from io import StringIO
from pathlib import Path

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import write_text
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.running import chosen_files, current_project, going_on
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.formatting import format_source, not_formatted
from dynaflow_dsl.imports import of_library
from dynaflow_dsl.source import Source

STDIN = "-"


@click.command("fmt")
@click.argument("paths", nargs=-1, metavar="[PATH...|-]")
@click.option(
    "--check", is_flag=True, help="Write nothing; name the files that would change."
)
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
@output_format_option
@click.pass_obj
def command(reporter: Reporter, paths: tuple[str, ...], check: bool, diff: bool) -> int:
    """Lay out schedule files, or all below a folder; by default those of the project,
    or all below the current folder.

    Spaces, line breaks and parentheses follow from the statements; comments stay, and
    single blank lines. A file with errors is left as it is. With - the text comes from
    stdin and goes to stdout.
    """
    project = current_project(reporter)
    if STDIN in paths:
        if len(paths) > 1:
            raise click.UsageError(
                "- stands for stdin, and for no other file beside it"
            )
        _format_stdin(reporter, check=check, diff=diff)
        return reporter.code
    for path in chosen_files(project, paths, default="."):
        with going_on(reporter, path):
            _format_file(reporter, path, check=check, diff=diff)
    return reporter.code


def _format_stdin(reporter: Reporter, *, check: bool, diff: bool) -> None:
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"stdin cannot be read: it is not UTF-8 text (byte {error.start})"
        reporter.show([Diagnostic("DFS113", message)])
        return
    source = Source(STDIN, text)
    formatted = _format(reporter, source)
    if formatted is None:
        return
    if check or diff:
        _compare(reporter, source, formatted, diff=diff)
    else:
        data = {"file": source.name, "text": formatted}
        reporter.result(formatted.removesuffix("\n"), data)


def _format_file(reporter: Reporter, path: str, *, check: bool, diff: bool) -> None:
    if of_library(path):
        raise click.UsageError(f"{path} is a file of the package: fmt writes your own")
    read = pipeline.read_exactly(path)
    reporter.show(read.diagnostics)
    formatted = _format(reporter, read.value) if read.value is not None else None
    if read.value is None or formatted is None:
        return
    if check or diff:
        _compare(reporter, read.value, formatted, diff=diff)
    elif read.value.text != formatted:
        # A link stays one: what it leads to is written.
        write_text(Path(path).resolve(), formatted)
        reporter.result(path, {"file": path})


def _format(reporter: Reporter, source: Source) -> str | None:
    formatted = format_source(pipeline.with_plain_line_ends(source))
    reporter.show(formatted.diagnostics)
    return formatted.value


def _compare(reporter: Reporter, source: Source, formatted: str, *, diff: bool) -> None:
    if source.text == formatted:
        return
    if diff:
        text = _difference(source, formatted)
        data = {"file": source.name, "diff": text}
        reporter.result(text.removesuffix("\n"), data)
    reporter.show([not_formatted(source, formatted)])


def _difference(source: Source, formatted: str) -> str:
    old, new = (
        # str.splitlines would also end lines where the language does not.
        list(StringIO(text, newline="\n"))
        for text in (source.text, formatted)
    )
    lines = difflib.unified_diff(old, new, source.name, source.name)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in lines
    )
