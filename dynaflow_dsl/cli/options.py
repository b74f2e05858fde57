"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.resolve.model import Scalar, ScheduleFile
from dynaflow_dsl.source import Span

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The trace target a command works with; `span` is the file's `model` line, if it
    was named there."""

    target: str
    arguments: Mapping[str, Scalar]
    span: Span | None


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
    file: ScheduleFile, path: str, model: str | None, arguments: Mapping[str, Scalar]
) -> ChosenModel:
    """The target of the command line, else of the file at `path`.

    Arguments of the file's line hold unless the command line names another target.
    Naming none at all is bad usage.
    """
    if model is not None:
        return ChosenModel(model, dict(arguments), None)
    reference = file.model
    if reference is None:
        raise click.UsageError(
            f'{path} names no model: add a line model "package.module:function" '
            "after the first, or give --model"
        )
    merged = {**dict(reference.arguments), **arguments}
    return ChosenModel(reference.target, merged, reference.span)


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
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if re.fullmatch(r"[+-]?\d+\.\d+(e[+-]?\d+)?", text):
        return float(text)
    return text


def write_arguments(model: str | None, arguments: Mapping[str, Scalar]) -> list[str]:
    """The words that give a command the same model again."""
    words = ["--model", model] if model is not None else []
    for name, value in arguments.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        words += ["-M", f"{name}={shown}"]
    return words


def _read_arguments(
    context: click.Context, option: click.Parameter, values: Iterable[str]
) -> dict[str, Scalar]:
    arguments: dict[str, Scalar] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{value!r} is not NAME=VALUE", context, option)
        if name in arguments:
            raise click.BadParameter(f"{name} is given twice", context, option)
        arguments[name] = read_scalar(text)
    return arguments
