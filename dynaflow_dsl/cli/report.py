"""What a command says: results to stdout, diagnostics and progress to stderr.

With `--output-format json` stdout holds one JSON document with both, so that a program
reads one stream; stderr then has progress alone. With `sarif` stdout is a SARIF log of
the diagnostics, and results go to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, TextIO, TypeVar, get_args

import click

from dynaflow_dsl.diagnostics import Diagnostic, Severity
from dynaflow_dsl.diagnostics.render import Form, render
from dynaflow_dsl.diagnostics.uses import once

Function = TypeVar("Function", bound=Callable[..., Any])

FORMS: tuple[Form, ...] = get_args(Form)

# The forms that are one document, written when all is known.
DOCUMENTS: tuple[Form, ...] = ("json", "sarif")

# Errors that leave nothing to find fault with: a model that cannot be loaded, a file
# that cannot be read or written, settings that mean nothing, a module that cannot be
# run here, a defect of ours.
COULD_NOT_RUN = ("DFS110", "DFS113", "DFS130", "DFS506", "DFS8", "DFS9")

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


class ExitCode(IntEnum):
    """What the shell gets to know."""

    FINE = 0
    FINDINGS = 1
    COULD_NOT_RUN = 2


class OutputError(Exception):
    """Stdout cannot be written; the text says why."""


class ReaderGoneError(Exception):
    """Whoever read stdout has seen enough, as in `dfsc show | head`."""


@dataclass(slots=True)
class Reporter:
    """Writes what a command finds; one lives as long as one command line.

    `code` is the exit code so far: it only rises. `output` is where results go, None
    where stdout is closed; what a model prints meanwhile goes to stderr. `chosen` says
    that the command line named the format. One that is `silent` is of a rank for which
    another one tells how it goes. `first_error` is code and message of the first one.
    `about` is the file that the command works on: a finding without a place is about
    that one, unless it says another.
    """

    format: Form = "full"
    code: ExitCode = ExitCode.FINE
    output: TextIO | None = field(default_factory=lambda: sys.stdout)
    chosen: bool = False
    silent: bool = False
    first_error: str = ""
    about: str | None = None
    _diagnostics: list[Diagnostic] = field(default_factory=list)
    _results: list[object] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def show(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Write diagnostics as they come, or keep them for the document.

        Errors raise the exit code: to COULD_NOT_RUN for those of the kinds above. A
        file that others import is read again for each of them; what is wrong with it is
        shown once, and so is what is wrong with text that is used in several places.
        """
        shown = tuple(
            replace(each, about=each.about or self.about)
            for each in once(diagnostics)
            if self._is_new(each)
        )
        self.code = max([self.code, *map(_exit_code, shown)])
        errors = (each for each in shown if each.severity is Severity.ERROR)
        if not self.first_error and (first := next(errors, None)) is not None:
            self.first_error = f"{first.code}: {first.message}"
        if self.format in DOCUMENTS:
            self._diagnostics += shown
            return
        for diagnostic in shown:
            text = render([diagnostic], self.format)
            if self.format == "full":
                text = f"{_coloured(text, diagnostic)}\n"
            sys.stderr.write(text)

    def _is_new(self, diagnostic: Diagnostic) -> bool:
        text = render([diagnostic])
        if diagnostic.primary is None or text not in self._seen:
            self._seen.add(text)
            return True
        return False

    def prefer(self, form: Form | None) -> None:
        """Take the format of a project, unless the command line named one."""
        if form is not None and not self.chosen:
            self.format = form

    def fail(self) -> None:
        """Set the exit code for findings that a result has already shown."""
        self.code = max(self.code, ExitCode.FINDINGS)

    def say(self, text: str) -> None:
        """Write a line about progress."""
        if not self.silent:
            print(text, file=sys.stderr)

    def result(self, text: str, data: object) -> None:
        """Give what was asked for: text for people, without a last newline, or data."""
        if self.format == "json":
            self._results.append(data)
        elif self.format == "sarif":
            print(text, file=sys.stderr)
        else:
            self._write(text)

    def close(self) -> None:
        """Write the document, if the format is one, and all that is waiting.

        A silent rank that has nothing to add leaves the document to the one that tells.
        """
        said = self._results or self.code is not ExitCode.FINE
        match self.format if said or not self.silent else None:
            case "json":
                document = {
                    "format": 1,
                    "diagnostics": json.loads(render(self._diagnostics, "json")),
                    "results": self._results,
                }
                self._write(json.dumps(document, indent=2, ensure_ascii=False))
            case "sarif":
                self._write(render(self._diagnostics, "sarif").rstrip("\n"))
        self._flush()

    def _write(self, text: str) -> None:
        if self.output is None:
            raise OutputError("it is closed")
        encoding = self.output.encoding or "utf-8"
        shown = text.encode(encoding, "backslashreplace").decode(encoding)
        with _output_errors():
            self.output.write(f"{shown}\n")

    def _flush(self) -> None:
        with _output_errors():
            if self.output is not None:
                self.output.flush()


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        # Click would turn it into an exit code of its own.
        raise ReaderGoneError from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(reason) from error


def output_format_option(function: Function) -> Function:
    """`--output-format`, before the command or after it; the last one counts."""
    return click.option(
        "--output-format",
        type=click.Choice(FORMS),
        expose_value=False,
        callback=_choose_format,
        help="How diagnostics and results are written; the default is full.",
    )(function)


def _choose_format(
    context: click.Context, option: click.Parameter, value: Form | None
) -> None:
    if value is not None:
        reporter = context.ensure_object(Reporter)
        reporter.format, reporter.chosen = value, True


def _exit_code(diagnostic: Diagnostic) -> ExitCode:
    if diagnostic.severity is not Severity.ERROR:
        return ExitCode.FINE
    # An import that cannot be read is a mistake at a place in a file that was.
    placed = diagnostic.code == "DFS113" and diagnostic.primary is not None
    if diagnostic.code.startswith(COULD_NOT_RUN) and not placed:
        return ExitCode.COULD_NOT_RUN
    return ExitCode.FINDINGS


def _coloured(text: str, diagnostic: Diagnostic) -> str:
    if os.environ.get("NO_COLOR") or not sys.stderr.isatty():
        return text
    head, colon, rest = text.partition(":")
    return click.style(head, fg=COLOURS[diagnostic.severity], bold=True) + colon + rest
