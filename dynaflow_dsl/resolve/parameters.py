"""The parameters of a schedule: their defaults, and what is set from outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import Names, suggestions
from dynaflow_dsl.resolve.model import Atom, Value
from dynaflow_dsl.resolve.values import evaluate, written
from dynaflow_dsl.resolve.walk import symbols
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax

# What a step has and a schedule must not name otherwise: `when` reads them.
STEP_VALUES = frozenset("batch phase seq tokens".split())

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")


def on_command_line(name: str) -> str:
    """How the command line names a parameter that it sets."""
    return f"-P {name}"


@dataclass(frozen=True, slots=True)
class Setting:
    """What is set from outside of the file, in words of a command line.

    `place` names the parameter as whoever sets it does: `-P ways`.
    """

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class Argument:
    """A value that a `select` gives to a parameter, and where it does."""

    value: Value
    span: Span


def resolve_parameters(
    declared: syntax.Schedule | syntax.Select,
    given: Mapping[str, Setting | Argument],
    names: Names,
    found: list[Diagnostic],
    groups: Sequence[syntax.PartGroup] = (),
) -> dict[str, Value | None]:
    """The value of each parameter; None where it is wrong.

    `groups` are those that the schedule uses, whose kernels may read parameters too.

    A default may use the parameters before it, and follows them when a setting from
    outside or the arguments of a `select` set those.
    """
    values: dict[str, Value | None] = {}
    read = {symbol.name for symbol in symbols(_body(declared))}
    read |= {symbol.name for symbol in symbols(declared.parameters)}
    read |= {symbol.name for group in groups for symbol in symbols(group.parts)}
    for parameter in declared.parameters:
        name = parameter.name
        if name.text in STEP_VALUES:
            found.append(_step_value(name))
            values.setdefault(name.text, None)
            continue
        value = evaluate(parameter.value, found, values)
        if not names.declare("parameter", name):
            values.setdefault(name.text, None)
            continue
        if name.text in given and value is not None:
            match given[name.text]:
                case Setting() as setting:
                    value = _set(parameter, value, setting, found)
                case Argument() as argument:
                    value = _argued(parameter, value, argument, found)
        values[name.text] = value
        if name.text not in read:
            found.append(_unused(parameter))
    return values


def _body(declared: syntax.Schedule | syntax.Select) -> tuple[object, ...]:
    match declared:
        case syntax.Schedule(statements=statements):
            return statements
        case syntax.Select(conditions=conditions, cases=cases, otherwise=otherwise):
            return (*conditions, *cases, otherwise)


def check_given(
    given: Mapping[str, Setting], schedules: Sequence[syntax.Schedule | syntax.Select]
) -> Iterable[Diagnostic]:
    """Refuse what is set from outside and nothing has a parameter for.

    `schedules` are all of a file, or its `select` alone.
    """
    known = {item.name.text for each in schedules for item in each.parameters}
    for name, setting in given.items():
        if name in known:
            continue
        place = None
        if len(schedules) == 1:
            listed = ", ".join(item.name.text for item in schedules[0].parameters)
            text = f"its parameters: {listed}" if listed else "it has no parameters"
            place = Label(schedules[0].name.span, text)
        yield Diagnostic(
            "DFS102",
            f"{setting.place}: there is no parameter '{name}'",
            place,
            helps=suggestions(name, known),
        )


def _argued(
    parameter: syntax.Argument,
    default: Value,
    argument: Argument,
    found: list[Diagnostic],
) -> Value | None:
    """What a line of a `select` says, if it is of the default's kind."""
    if _fits(argument.value, default):
        return argument.value
    found.append(
        Diagnostic(
            "DFS108",
            f"'{parameter.name.text}' must be {_kind(default)}",
            Label(argument.span, f"this is {written(argument.value)}"),
            (Label(parameter.span, f"the default is {written(default)}"),),
        )
    )
    return None


def _fits(value: Value, default: Value) -> bool:
    """Whether a value is of a default's kind; a whole number is a decimal too."""
    match default:
        case tuple():
            wanted: Atom = default[0]
            if any(isinstance(item, Fraction) for item in default):
                wanted = Fraction()
            return isinstance(value, tuple) and all(_fits(v, wanted) for v in value)
        case bool() | str():
            return type(value) is type(default)
        case int():
            return type(value) is int
        case Fraction():
            return type(value) in (int, Fraction)


def _set(
    parameter: syntax.Argument,
    default: Value,
    setting: Setting,
    found: list[Diagnostic],
) -> Value | None:
    """What is set from outside, read as a value of the default's kind."""
    value = _read(setting.text, default)
    if value is None:
        found.append(
            Diagnostic(
                "DFS108",
                f"{setting.place}={setting.text}: this must be {_kind(default)}",
                Label(parameter.span, f"the default is {written(default)}"),
            )
        )
    return value


def _read(text: str, default: Value) -> Value | None:
    if isinstance(default, tuple):
        return _read_list(text.strip(), default)
    return _read_atom(text, default)


def _read_atom(text: str, default: Atom) -> Atom | None:
    match default:
        case bool():
            return {"true": True, "false": False}.get(text)
        case int():
            return int(text) if _WHOLE.fullmatch(text) else None
        case Fraction():
            return Fraction(text) if _DECIMAL.fullmatch(text) else None
        case str():
            # No place in the language takes a text that could not be written there.
            return text if re.fullmatch(r'[^"\x00-\x1f]*', text) else None


def _read_list(text: str, default: tuple[Atom, ...]) -> Value | None:
    """`[a, b]` or `a, b`: items of the kind of the default's first."""
    example: Atom = default[0]
    if any(isinstance(item, Fraction) for item in default):
        example = Fraction()
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    words = (_item(item.strip(), example) for item in inner.split(","))
    items = [_read_atom(word, example) for word in words]
    known = tuple(item for item in items if item is not None)
    return known if len(known) == len(items) else None


def _item(text: str, example: Atom) -> str:
    quoted = isinstance(example, str) and re.fullmatch(r'"[^"]*"', text)
    return text[1:-1] if quoted else text


def _kind(default: Value) -> str:
    match default:
        case bool():
            return "true or false"
        case int():
            return "a whole number of at most 18 digits"
        case Fraction():
            return "a number of at most 18 digits"
        case str():
            return "a text without quotes and control characters"
        case tuple():
            return f"a list such as {written(default)}"


def _step_value(name: syntax.Name) -> Diagnostic:
    return Diagnostic(
        "DFS101",
        f"'{name.text}' cannot be a name here",
        Label(name.span, "a value of each step"),
        helps=("choose another name",),
    )


def _unused(parameter: syntax.Argument) -> Diagnostic:
    name = parameter.name.text
    return Diagnostic(
        "DFS103",
        f"parameter '{name}' is never used",
        Label(parameter.span, "nothing depends on it"),
        helps=("remove it, or use it in the schedule",),
    )


def listed(
    tree: syntax.Schedule | syntax.Select, values: Mapping[str, Value | None]
) -> tuple[model.Parameter, ...]:
    """The parameters that have a value, in order."""
    found = []
    for parameter in tree.parameters:
        value = values.get(parameter.name.text)
        if value is not None:
            name = parameter.name.text
            found.append(model.Parameter(name, value, parameter.span))
    return tuple(found)
