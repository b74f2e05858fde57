"""The command `dfsc`: finds the command's module, runs it, and turns every failure
into an exit code and words.

Commands are imported when they are called, and import torch only where they run a
model, so that `check`, `show` and `explain` start at once.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from copy import copy
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from typing import Any

import click

from dynaflow_dsl import __version__
from dynaflow_dsl.cli.defects import internal_error
from dynaflow_dsl.cli.report import (
    ExitCode,
    OutputError,
    ReaderGoneError,
    Reporter,
    output_format_option,
)
from dynaflow_dsl.diagnostics import DiagnosticError

# They need no torch. Those that run a model leave the garbage collector as it is.
LIGHT_COMMANDS = ("check", "fmt", "show", "diff", "explain")
COMMANDS = (
    "compile",
    "check",
    "fmt",
    "show",
    "why",
    "diff",
    "trace",
    "verify",
    "bench",
    "profile",
    "explain",
)

NEED_TORCH = ("compile", "trace", "verify", "bench", "profile")


class _Commands(click.Group):
    """One module of this package per command, each with its `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"dynaflow_dsl.cli.{cmd_name}")
        command: click.Command = copy(module.command)
        command.callback = _results_apart(command.callback)
        if cmd_name in NEED_TORCH:
            command.callback = _with_torch(cmd_name, command.callback)
        return command


def _with_torch(name: str, callback: Callable[..., Any]) -> Callable[..., Any]:
    """A command that is refused in words where torch is not installed."""

    def run_command(*arguments: Any, **options: Any) -> Any:
        if find_spec("torch") is None:
            raise click.ClickException(
                f"`dfsc {name}` runs models, and torch is not installed: "
                f'pip install "{_supported_torch()}"'
            )
        return callback(*arguments, **options)

    return run_command


def _supported_torch() -> str:
    """The versions of torch that this package requires, as pip takes them."""
    with suppress(PackageNotFoundError):
        for requirement in requires("dynaflow-dsl") or ():
            if re.match(r"torch\b(?!-)", requirement):
                return requirement
    return "torch"


def _results_apart(callback: Callable[..., Any] | None) -> Callable[..., Any]:
    """A command whose stdout is stderr: what targets and models print is no result.

    The reporter keeps the real one.
    """

    def run_command(*arguments: Any, **options: Any) -> Any:
        with redirect_stdout(sys.stderr):
            return callback(*arguments, **options) if callback else None

    return run_command


@click.group(
    "dfsc",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="dfsc")
@output_format_option
def commands() -> None:
    """Compile overlap schedules (.dfs) into modules that people can review.

    Exit codes: 0 fine; 1 something was found, or --check found a module stale or
    missing or a schedule not formatted; 2 the command could not run.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line, without the program's name; the result is the exit code."""
    reporter = Reporter()
    try:
        code = _run(arguments, reporter)
        reporter.close()
    except ReaderGoneError:
        _discard_output(reporter)
        return ExitCode.FINE
    except OutputError as error:
        reporter.say(f"Error: stdout cannot be written: {error}")
        _discard_output(reporter)
        return ExitCode.COULD_NOT_RUN
    return code


def _discard_output(reporter: Reporter) -> None:
    """Lead what is left to write nowhere, or Python tries again when it ends."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), reporter.output.fileno())  # type: ignore[union-attr]


def main() -> None:
    """Entry point of the installed command."""
    if any(word in LIGHT_COMMANDS for word in sys.argv[1:2]):
        # They build trees that live to the end: looking for cycles in them at every
        # turn takes a tenth of the time and finds nothing.
        gc.set_threshold(200_000)
    sys.exit(run(sys.argv[1:]))


def _run(arguments: Sequence[str], reporter: Reporter) -> int:
    try:
        code = commands.main(
            list(arguments), prog_name="dfsc", standalone_mode=False, obj=reporter
        )
    except click.ClickException as error:
        error.show()
        return ExitCode.COULD_NOT_RUN
    except (click.Abort, KeyboardInterrupt):
        reporter.say("interrupted")
        return ExitCode.COULD_NOT_RUN
    except (ReaderGoneError, OutputError):
        raise
    except OSError as error:
        # Click writes help and version itself; all other errors name their file.
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EBADF):
            raise OutputError(error.strerror) from error
        return _unexpected(error, reporter)
    except DiagnosticError as error:
        reporter.show(error.diagnostics)
        return reporter.code
    except Exception as error:
        return _unexpected(error, reporter)
    return code if isinstance(code, int) else ExitCode.FINE


def _unexpected(error: Exception, reporter: Reporter) -> ExitCode:
    reporter.show([internal_error(error)])
    return reporter.code
