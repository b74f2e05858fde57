"""`select`: the schedules that its lines choose, and what may stand in a condition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import Names, given_twice, unknown_name
from dynaflow_dsl.resolve.parameters import (
    Argument,
    Setting,
    listed,
    resolve_parameters,
)
from dynaflow_dsl.resolve.requirements import check_names
from dynaflow_dsl.resolve.schedule import ScheduleResolver
from dynaflow_dsl.resolve.scopes import FileScope, Scopes
from dynaflow_dsl.resolve.values import evaluate, evaluate_condition, written
from dynaflow_dsl.resolve.walk import symbols, used_at
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax

PHASE = "phase"
SEQUENTIAL = "sequential"


def resolve_select(
    tree: syntax.Select,
    scope: FileScope,
    scopes: Scopes,
    given: Mapping[str, Setting],
    found: list[Diagnostic],
) -> tuple[model.Select, tuple[model.Schedule, ...]]:
    """A select, and the schedules that it chooses, each with its arguments once.

    What is wrong goes into `found`; the value then counts for nothing.
    """
    values = resolve_parameters(tree, given, Names(found), found)
    choices = _Choices(tree, scope, scopes, values, found)
    phases: list[syntax.Name] = []
    lines: list[model.SelectLine] = []
    for case in tree.cases:
        condition = _with_phases(case.condition, phases, found)
        _check_constant(case, condition, values, found)
        lines.append(choices.line(condition, case.choice, case.span))
    last = tree.otherwise
    lines.append(choices.line(None, last.choice, last.span))
    if all(call.name.text == SEQUENTIAL for call in _calls(tree)):
        found.append(_chooses_nothing(tree))
    requires = [each for each in tree.conditions if isinstance(each, syntax.Require)]
    for requirement in requires:
        found += check_names(requirement, (), values)
    equal = _equal(tree, found)
    select = model.Select(
        tree.name.text,
        tree.doc,
        listed(tree, values),
        tuple(model.Requirement(each.condition, each.span) for each in requires),
        equal,
        tuple(phases),
        tuple(lines),
        tree.name.span,
        tree.span,
    )
    return select, tuple(choices.schedules)


def _calls(tree: syntax.Select) -> Iterator[syntax.Call]:
    yield from (case.choice for case in tree.cases)
    yield tree.otherwise.choice


# ---- what the lines choose -----------------------------------------------------------


@dataclass(slots=True)
class _Choices:
    """The schedules chosen so far, by declaration and arguments."""

    tree: syntax.Select
    scope: FileScope
    scopes: Scopes
    values: Mapping[str, model.Value | None]
    found: list[Diagnostic]
    schedules: list[model.Schedule] = field(default_factory=list)
    names: dict[tuple[str, tuple[model.Value, ...]], str] = field(default_factory=dict)

    def line(
        self,
        condition: syntax.Expression | None,
        call: syntax.Call,
        span: Span,
    ) -> model.SelectLine:
        text = " ".join(call.span.text.split())
        return model.SelectLine(condition, self._choose(call), text, span)

    def _choose(self, call: syntax.Call) -> str | None:
        """The name of the chosen schedule; None for `sequential`, or after an error."""
        name = call.name
        if name.text == SEQUENTIAL:
            if call.arguments:
                self.found.append(_argued_sequential(call))
            return None
        if name.text not in self.scope.schedules:
            self._say_unknown(name)
            return None
        declared = self.scope.schedules[name.text]
        arguments = self._arguments(call, declared)
        if arguments is None:
            return None
        # What is wrong with it may be so only with these arguments: show both places.
        placed = used_at(declared, call.span) if call.arguments else declared
        home = self.scopes.of(declared.span.source)
        before = len(self.found)
        resolver = ScheduleResolver(
            placed, home.groups, arguments, self.found, self.scopes.kernels
        )
        schedule = resolver.resolve()
        if schedule is None or len(self.found) > before:
            return None
        key = (name.text, tuple(each.value for each in schedule.parameters))
        if key in self.names:
            return self.names[key]
        variant = self._variant(name.text, declared, arguments)
        self.names[key] = variant
        self.schedules.append(replace(schedule, name=variant))
        return variant

    def _say_unknown(self, name: syntax.Name) -> None:
        if name.text in self.scope.broken:
            return
        if name.text in self.scope.groups.sound or name.text in self.scope.kernels:
            kind = "kernel" if name.text in self.scope.kernels else "group of parts"
            self.found.append(
                Diagnostic(
                    "DFS108",
                    f"a line chooses a schedule, and '{name.text}' is a {kind}",
                    Label(name.span, "not a schedule"),
                )
            )
            return
        choices = (*self.scope.schedules, SEQUENTIAL)
        self.found.append(unknown_name("schedule", name.text, name.span, choices))

    def _arguments(
        self, call: syntax.Call, declared: syntax.Schedule
    ) -> dict[str, Argument] | None:
        """Values by parameter, in the order of the declaration; None after an error."""
        known = [parameter.name.text for parameter in declared.parameters]
        given: dict[str, Argument] = {}
        first: dict[str, syntax.Name] = {}
        sound = True
        for argument in call.arguments:
            name = argument.name
            if name.text in first:
                what = f"argument '{name.text}'"
                self.found.append(given_twice(what, name.span, first[name.text].span))
                sound = False
                continue
            first[name.text] = name
            if name.text not in known:
                kind = f"parameter of '{call.name.text}' called"
                self.found.append(unknown_name(kind, name.text, name.span, known))
                sound = False
                continue
            value = evaluate(argument.value, self.found, self.values)
            if value is None:
                sound = False
            else:
                given[name.text] = Argument(value, argument.value.span)
        if not sound:
            return None
        return {name: given[name] for name in known if name in given}

    def _variant(
        self,
        name: str,
        declared: syntax.Schedule,
        arguments: Mapping[str, Argument],
    ) -> str:
        """A schedule's name, with the arguments that are not its defaults."""
        defaults = resolve_parameters(declared, {}, Names([]), [])
        words = [name]
        for key, argument in arguments.items():
            if argument.value != defaults.get(key):
                words += [key, _word(argument.value)]
        wanted = "_".join(words)
        taken = {schedule.name for schedule in self.schedules}
        taken |= self.scope.schedules.keys() - {name}
        variant, number = wanted, 2
        while variant in taken:
            variant, number = f"{wanted}_{number}", number + 1
        return variant


def _word(value: model.Value) -> str:
    """A value as a part of a name."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple():
            return "_".join(map(_word, value))
        case int() | Fraction():
            text = written(value).replace("-", "minus_").replace(".", "_")
        case str():
            text = value
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "none"


# ---- conditions ----------------------------------------------------------------------


def _with_phases(
    expression: syntax.Expression, phases: list[syntax.Name], found: list[Diagnostic]
) -> syntax.Expression:
    """A condition in which the entries that `phase` is compared with are texts."""
    match expression:
        case syntax.Comparison(operator, left, right, span):
            if _is_phase(right) and operator in ("==", "!="):
                left, right = right, left
            if _is_phase(left):
                entries = _entries(operator, right, phases)
                if entries is None:
                    found.append(_wrong_phase(span))
                    return expression
                return syntax.Comparison(operator, left, entries, span)
            return syntax.Comparison(
                operator,
                _with_phases(left, phases, found),
                _with_phases(right, phases, found),
                span,
            )
        case syntax.Symbol(name, span) if name == PHASE:
            found.append(_wrong_phase(span))
            return expression
        case syntax.Logical(operator, left, right, span):
            return syntax.Logical(
                operator,
                _with_phases(left, phases, found),
                _with_phases(right, phases, found),
                span,
            )
        case syntax.Not(operand, span):
            return syntax.Not(_with_phases(operand, phases, found), span)
        case syntax.Arithmetic(operator, left, right, span):
            return syntax.Arithmetic(
                operator,
                _with_phases(left, phases, found),
                _with_phases(right, phases, found),
                span,
            )
        case _:
            return expression


def _is_phase(expression: syntax.Expression) -> bool:
    return isinstance(expression, syntax.Symbol) and expression.name == PHASE


def _entries(
    operator: str, expression: syntax.Expression, phases: list[syntax.Name]
) -> syntax.Expression | None:
    """Bare words as texts, or None where something else stands."""
    match expression:
        case syntax.Symbol(name, span) if operator in ("==", "!=") and name != PHASE:
            phases.append(syntax.Name(name, span))
            return syntax.String(name, span)
        case syntax.ListOf(items, span) if operator == "in":
            words = [_entries("==", item, phases) for item in items]
            known = tuple(word for word in words if word is not None)
            return syntax.ListOf(known, span) if len(known) == len(words) else None
    return None


def _check_constant(
    case: syntax.When,
    condition: syntax.Expression,
    values: Mapping[str, model.Value | None],
    found: list[Diagnostic],
) -> None:
    """Refuse a condition that reads parameters alone."""
    if any(symbol.name not in values for symbol in symbols(condition)):
        return
    # Whatever is wrong with it is said here as well, once.
    truth = evaluate_condition(condition, found, values)
    if truth is None:
        return
    always = "always" if truth else "never"
    found.append(
        Diagnostic(
            "DFS121",
            f"this condition {always} holds",
            Label(case.condition.span, "reads no size, phase or fact"),
            helps=(
                "compare a size of the step, such as 'batch >= 64', or remove the line",
            ),
        )
    )


def _equal(tree: syntax.Select, found: list[Diagnostic]) -> tuple[syntax.Name, ...]:
    """The names that `equal` lists, each once and read by some condition."""
    read = {symbol.name for case in tree.cases for symbol in symbols(case.condition)}
    first: dict[str, syntax.Name] = {}
    for statement in tree.conditions:
        if not isinstance(statement, syntax.Equal):
            continue
        for name in statement.names:
            if name.text in first:
                what = f"'equal {name.text}'"
                found.append(given_twice(what, name.span, first[name.text].span))
                continue
            first[name.text] = name
            if name.text not in read:
                found.append(
                    Diagnostic(
                        "DFS103",
                        f"no 'when' reads '{name.text}'",
                        Label(name.span, "nothing depends on it"),
                        helps=("remove it from 'equal'",),
                    )
                )
    return tuple(first.values())


def _wrong_phase(span: Span) -> Diagnostic:
    return Diagnostic(
        "DFS108",
        "'phase' is compared with the name of an entry",
        Label(span, "no such comparison"),
        helps=(
            "write 'phase == prefill', 'phase != prefill' or 'phase in [prefill]', "
            "without quotes",
        ),
    )


def _argued_sequential(call: syntax.Call) -> Diagnostic:
    return Diagnostic(
        "DFS102",
        "'sequential' has no parameters",
        Label(call.arguments[0].span, "unknown"),
        helps=("write 'sequential' alone",),
    )


def _chooses_nothing(tree: syntax.Select) -> Diagnostic:
    return Diagnostic(
        "DFS312",
        f"select '{tree.name.text}' chooses no schedule",
        Label(tree.name.span, "every line is 'sequential'"),
        helps=("choose a schedule of this file, or one that it imports",),
    )
