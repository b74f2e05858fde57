"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Label
from dynaflow_dsl.resolve.model import Scalar, ScheduleFile
from dynaflow_dsl.source import Span

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The trace target a command works with; `span` is the file's `model` line, if it
    was named there. `given` says of arguments that do not stand there where they do.
    """

    target: str
    arguments: Mapping[str, Scalar]
    span: Span | None
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Given:
    """Parameters (`-P`) and facts (`-F`) of a command line; parameters in its words,
    since only the schedule says what kind of value each has.

    `arguments` are those that a module was made with beside the `model` line of its
    file (`-M`), by the target that takes them.
    """

    parameters: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    arguments: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)

    def over(self, other: Given) -> Given:
        """Both, where this one goes before the other."""
        return Given(
            {**other.parameters, **self.parameters},
            {**other.facts, **self.facts},
            {**other.arguments, **self.arguments},
        )

    def without(self, other: Given) -> Given:
        """What the other one does not give anyway."""
        return Given(
            {
                name: text
                for name, text in self.parameters.items()
                if other.parameters.get(name) != text
            },
            {
                name: value
                for name, value in self.facts.items()
                if other.facts.get(name) != value
            },
            self.arguments,
        )

    def words(self) -> list[str]:
        """The words that give a command the same again."""
        words = []
        for name, text in self.parameters.items():
            words += ["-P", f"{name}={text}"]
        for name, value in self.facts.items():
            words += ["-F", f"{name}={write_scalar(value)}"]
        return words


def parameter_option(function: Function) -> Function:
    """`-P name=value`, as often as needed."""
    return click.option(
        "-P",
        "parameters",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_read_pairs,
        help="A parameter of the schedule, such as -P ways=3.",
    )(function)


def fact_option(function: Function) -> Function:
    """`-F name=value`, as often as needed."""
    return click.option(
        "-F",
        "facts",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_read_arguments,
        help="A fact that `require` may ask for, such as -F tp_size=2; goes before "
        "what the model says.",
    )(function)


def model_argument_option(function: Function) -> Function:
    """`-M name=value`, as often as needed."""
    return click.option(
        "-M",
        "model_arguments",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_read_arguments,
        help="An argument of the trace target, such as -M layers=4.",
    )(function)


def model_options(function: Function) -> Function:
    """`--model` and `-M`, which go before what the file's `model` line says."""
    return click.option(
        "--model",
        metavar="TARGET",
        help="Trace target: package.module:function or path/file.py:function.",
    )(model_argument_option(function))


def choose_model(
    file: ScheduleFile,
    path: str,
    model: str | None,
    arguments: Mapping[str, Scalar],
    configured: Mapping[str, Scalar] = MappingProxyType({}),
    stored: Mapping[str, Mapping[str, Scalar]] = MappingProxyType({}),
) -> ChosenModel:
    """The target of the command line, else of the file at `path`.

    `arguments` are those of the command line, which go before those that the project
    has `configured`, and these before those that the module on disk was made with
    (`stored`, by target). Those of the file's line hold unless another target is named.
    Raises DiagnosticError (DFS110) when nothing names a target.
    """
    given = {
        name: f"{name} stands in `arguments` of this file in pyproject.toml"
        for name in configured
    }
    for name, value in arguments.items():
        given[name] = f"given by -M {name}={write_scalar(value)}"
    merged = {**configured, **arguments}
    if model is not None:
        return ChosenModel(model, merged, None, given)
    reference = file.model
    if reference is None:
        raise DiagnosticError([_no_model(file, path, arguments)])
    kept = stored.get(stored_name(reference.target), {})
    for name, value in kept.items():
        words = f"-M {name}={write_scalar(value)}"
        said = (
            f"the module on disk was made with {words}, and `dfsc compile` forgets it"
        )
        given.setdefault(name, said)
    merged = {**dict(reference.arguments), **kept, **merged}
    return ChosenModel(reference.target, merged, reference.span, given)


def _no_model(
    file: ScheduleFile, path: str, arguments: Mapping[str, Scalar]
) -> Diagnostic:
    place = None
    if file.schedules:
        place = Label(file.schedules[0].name_span, "no model for this schedule")
    words = " ".join(write_arguments(None, arguments))
    return Diagnostic(
        "DFS110",
        f"{path} names no model",
        place,
        notes=(f"{words} is an argument of a model",) if words else (),
        helps=(
            'add a line model "package.module:function" after the first',
            "or give --model, or a `model` of this file in pyproject.toml",
        ),
    )


def stored_name(target: str) -> str:
    """A target as snapshots and maps name it, without the folders of this machine.

    The file of an absolute path goes by its path from the root of its project.
    """
    place, _, function = target.rpartition(":")
    if place.endswith(".py") and Path(place).is_absolute():
        return f"{pipeline.stable_name(place)}:{function}"
    return target


def read_scalar(text: str) -> Scalar:
    """`true` and `false`, an integer, a decimal number, else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    # Python reads no integer of more digits.
    if re.fullmatch(r"[+-]?[0-9]{1,4000}", text):
        return int(text)
    if re.fullmatch(r"[+-]?[0-9]+\.[0-9]+(e[+-]?[0-9]+)?", text):
        return float(text)
    return text


def write_scalar(value: Scalar) -> str:
    """The text that is read as this value."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_arguments(model: str | None, arguments: Mapping[str, Scalar]) -> list[str]:
    """The words that give a command the same model again."""
    words = ["--model", model] if model is not None else []
    for name, value in arguments.items():
        words += ["-M", f"{name}={write_scalar(value)}"]
    return words


def _read_arguments(
    context: click.Context, option: click.Parameter, values: Iterable[str]
) -> dict[str, Scalar]:
    pairs = _read_pairs(context, option, values)
    return {name: read_scalar(text) for name, text in pairs.items()}


def _read_pairs(
    context: click.Context, option: click.Parameter, values: Iterable[str]
) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{value!r} is not NAME=VALUE", context, option)
        if name in pairs:
            raise click.BadParameter(f"{name} is given twice", context, option)
        pairs[name] = text
    return pairs
