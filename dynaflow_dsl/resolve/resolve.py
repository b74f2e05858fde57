"""Syntax tree to schedules: every name looked up, every timeline written out."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dynaflow_dsl.diagnostics import Diagnostic, Result
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.digest import meaning_digest
from dynaflow_dsl.resolve.findings import Names, given_twice, not_yet
from dynaflow_dsl.resolve.schedule import ScheduleResolver
from dynaflow_dsl.resolve.values import evaluate, wrong_value
from dynaflow_dsl.syntax import SyntaxTree
from dynaflow_dsl.syntax import model as syntax


def resolve(tree: SyntaxTree) -> Result[model.ScheduleFile]:
    """What a file says.

    There is a value only when nothing is wrong. Statements that the language has and
    this release has not are errors (DFS020), never passed over.
    """
    found: list[Diagnostic] = []
    reference = _model(tree.model, found) if tree.model else None
    names = Names(found)
    schedules = []
    for declaration in tree.declarations:
        match declaration:
            case syntax.Schedule():
                names.declare("schedule", declaration.name)
                schedule = ScheduleResolver(declaration, found).resolve()
                if schedule is not None:
                    schedules.append(schedule)
            case syntax.Import():
                found.append(not_yet("'from ... import'", declaration.span))
            case syntax.Kernel():
                found.append(not_yet("'kernel'", declaration.span))
            case syntax.PartGroup():
                found.append(not_yet("'parts'", declaration.span))
            case syntax.Select():
                found.append(not_yet("'select'", declaration.span))
    if found:
        return Result(None, _in_order(found))
    digest = meaning_digest(reference, schedules)
    return Result(model.ScheduleFile(reference, tuple(schedules), digest))


def _in_order(found: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(found, key=lambda d: d.primary.span.start if d.primary else 0))


def _model(line: syntax.Model, found: list[Diagnostic]) -> model.ModelReference:
    arguments: dict[str, model.Scalar] = {}
    spans: dict[str, syntax.Name] = {}
    for option in line.options:
        name = option.name
        if name.text in spans:
            what = f"argument '{name.text}'"
            found.append(given_twice(what, name.span, spans[name.text].span))
        spans[name.text] = name
        value = evaluate(option.value, found)
        match value:
            case tuple():
                wanted = "a number, a text, true or false"
                found.append(wrong_value(wanted, value, option.value.span))
            case Fraction():
                arguments[name.text] = float(value)
            case bool() | int() | str():
                arguments[name.text] = value
            case None:
                pass
    return model.ModelReference(line.target.value, tuple(arguments.items()), line.span)
