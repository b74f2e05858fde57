"""Fields of a snapshot's JSON: what they are, or what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from dynaflow_dsl.graph.text import TextError

T = TypeVar("T")


class WrongError(Exception):
    """What is wrong with a part of the snapshot; places are added on the way out."""


def fields_of(
    data: object,
    required: Mapping[str, type],
    optional: Mapping[str, type] | None = None,
) -> dict[str, Any]:
    """An object with these fields of these types, and no others."""
    if not isinstance(data, dict):
        raise WrongError("it is not an object")
    options = optional or {}
    for key, wanted in required.items():
        if key not in data:
            raise WrongError(f"'{key}' is missing")
        value = data[key]
        if type(value) is not wanted:
            raise WrongError(f"'{key}' is not of type {wanted.__name__}")
    if len(data) > len(required):
        for key, value in data.items():
            if key in required:
                continue
            if key not in options:
                raise WrongError(f"'{key}' is unknown")
            if options[key] is not object and type(value) is not options[key]:
                raise WrongError(f"'{key}' is not of type {options[key].__name__}")
    return data


def repeated(names: Iterable[str]) -> str | None:
    """The first name that is there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def each_of(
    name: str, items: list[object], read: Callable[[object], T]
) -> tuple[T, ...]:
    """A list, each item read; what is wrong with one names its place."""
    result: list[T] = []
    for index, item in enumerate(items):
        try:
            result.append(read(item))
        except (WrongError, TextError) as wrong:
            raise WrongError(f"{name}[{index}]: {wrong}") from None
    return tuple(result)


def scalars_of(
    name: str, data: Mapping[str, object]
) -> tuple[tuple[str, bool | int | float | str], ...]:
    """An object of numbers, strings and truth values."""
    scalars: list[tuple[str, bool | int | float | str]] = []
    for key, value in data.items():
        if not isinstance(value, bool | int | float | str):
            raise WrongError(f"{name}.{key}: it is no number, string or truth value")
        scalars.append((key, value))
    return tuple(scalars)


def string_of(name: str, value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise WrongError(f"{name}: it is no string")
    return value


def names_of(name: str, data: object) -> tuple[str, ...]:
    """Names, each there once."""
    if not isinstance(data, list) or not all(isinstance(n, str) and n for n in data):
        raise WrongError(f"{name}: it is no list of names")
    if (twice := repeated(data)) is not None:
        raise WrongError(f"{name}: {twice!r} is there twice")
    return tuple(data)


def strings_of(name: str, items: list[object]) -> tuple[str, ...]:
    """A list of strings."""
    for item in items:
        if not isinstance(item, str):
            raise WrongError(f"{name}: it holds something that is no string")
    return tuple(items)  # type: ignore[arg-type]
