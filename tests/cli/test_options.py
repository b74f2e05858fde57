import click
import pytest
from click.testing import CliRunner

from dynaflow_dsl.cli.main import COMMANDS, commands
from dynaflow_dsl.cli.options import (
    choose_model,
    model_argument_option,
    read_scalar,
    write_arguments,
)
from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.resolve.model import ModelReference, Scalar, ScheduleFile
from dynaflow_dsl.source import Source, Span

SPAN = Span(Source("a.dfs", "model"), 0, 5)
LINE = ModelReference("targets:a", (("layers", 8), ("heads", 4)), SPAN)
FILE = ScheduleFile(LINE, (), "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("12", 12),
        ("-3", -3),
        ("0.5", 0.5),
        ("1.5e-3", 0.0015),
        ("True", "True"),
        ("nan", "nan"),
        ("1_000", "1_000"),
        ("name", "name"),
        ("", ""),
    ],
)
def test_scalars(text: str, value: Scalar) -> None:
    read = read_scalar(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("value", [True, False, 12, -3, 0.5, "name"])
def test_written_arguments_are_read_back(value: Scalar) -> None:
    *_, word = write_arguments(None, {"name": value})
    assert read_scalar(word.partition("=")[2]) == value


def test_command_line_overrides_single_arguments_of_the_file() -> None:
    chosen = choose_model(FILE, "a.dfs", None, {"layers": 2})
    assert (chosen.target, dict(chosen.arguments)) == (
        "targets:a",
        {"layers": 2, "heads": 4},
    )
    assert chosen.span is SPAN


def test_another_target_takes_no_argument_of_the_file() -> None:
    chosen = choose_model(FILE, "a.dfs", "targets:b", {"layers": 2})
    assert (chosen.target, dict(chosen.arguments)) == ("targets:b", {"layers": 2})
    assert chosen.span is None


def test_no_target_at_all() -> None:
    with pytest.raises(
        DiagnosticError, match=r"error\[DFS110\]: a\.dfs names no model"
    ):
        choose_model(ScheduleFile(None, (), ""), "a.dfs", None, {"layers": 2})


def test_options_of_one_name_are_the_same_in_all_commands() -> None:
    """Whoever knows an option of one command knows it of all."""
    context = click.Context(commands)
    found: dict[str, dict[str, str]] = {}
    for name in COMMANDS:
        command = commands.get_command(context, name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option):
                kind = f"{option.type.name} {option.is_flag} {option.multiple}"
                for written in option.opts:
                    found.setdefault(written, {})[name] = f"{kind} {option.metavar}"
    different = {
        written: by_command
        for written, by_command in found.items()
        if len(set(by_command.values())) > 1
    }
    # The output of `trace` is a file, that of the others a folder.
    assert set(different) <= {"-o"}
    takes = {written: set(by_command) for written, by_command in found.items()}
    runs = {"compile", "verify", "bench", "profile"}
    assert takes["-P"] == {*runs, "check", "show", "why"}
    assert takes["-F"] == takes["-P"]
    assert takes["-M"] == {*runs, "trace"}
    assert takes["--output-format"] == set(COMMANDS)


@click.command()
@model_argument_option
def echo(model_arguments: dict[str, Scalar]) -> None:
    click.echo(repr(model_arguments))


def test_arguments_are_collected() -> None:
    done = CliRunner().invoke(echo, ["-M", "layers=2", "-M", "name=a=b"])
    assert done.output == "{'layers': 2, 'name': 'a=b'}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["layers"], "'layers' is not NAME=VALUE"),
        (["=2"], "'=2' is not NAME=VALUE"),
        (["a b=2"], "'a b=2' is not NAME=VALUE"),
        (["a=1", "a=2"], "a is given twice"),
    ],
)
def test_wrong_arguments_are_refused(words: list[str], message: str) -> None:
    done = CliRunner().invoke(echo, [w for word in words for w in ("-M", word)])
    assert done.exit_code == 2
    assert message in done.output
