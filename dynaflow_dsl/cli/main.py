"""The command `dfsc`: finds the command's module, runs it, and turns every failure
into an exit code and words.

Commands are imported when they are called, and import torch only where they run a
model, so that `check`, `show` and `explain` start at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from dynaflow_dsl import __version__
from dynaflow_dsl.cli.report import ExitCode, Reporter, output_format_option
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.resources import PACKAGE

COMMANDS = ("compile", "check", "fmt", "show", "trace", "verify", "explain")


class _Commands(click.Group):
    """One module of this package per command, each with its `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"dynaflow_dsl.cli.{cmd_name}")
        command: click.Command = module.command
        return command


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
    code = _run(arguments, reporter)
    reporter.close()
    return code


def main() -> None:
    """Entry point of the installed command."""
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
    except BrokenPipeError:
        # The reader has seen enough (`dfsc show | head`); nothing may be written on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FINE
    except DiagnosticError as error:
        reporter.show(error.diagnostics)
        return reporter.code
    except Exception as error:
        if os.environ.get("DFSC_TRACEBACK") == "1":
            traceback.print_exc()
        reporter.show([internal_error(error)])
        return reporter.code
    return code if isinstance(code, int) else ExitCode.FINE


def internal_error(error: Exception) -> Diagnostic:
    """DFS900: an exception that no stage expected."""
    kind = type(error).__name__
    first, *_ = str(error).splitlines() or [""]
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    ours = [(file, n) for file, n in frames if file.is_relative_to(PACKAGE)]
    notes = tuple(
        f"in {file.relative_to(PACKAGE.parent).as_posix()}, line {number}"
        for file, number in ours[-1:]
    )
    return Diagnostic(
        code="DFS900",
        message=f"dfsc failed where it should not: {kind}: {first}".rstrip(": "),
        notes=notes,
        helps=(
            "this is a defect of dfsc: please report it with the file that shows it",
            "run again with DFSC_TRACEBACK=1 for the traceback",
        ),
    )
