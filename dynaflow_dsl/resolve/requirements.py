"""`require`: conditions on the model, decided once its facts are known."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from dynaflow_dsl.diagnostics import Diagnostic, Label, Result, Severity
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import suggestions
from dynaflow_dsl.resolve.parameters import STEP_VALUES
from dynaflow_dsl.resolve.values import evaluate_condition, written
from dynaflow_dsl.resolve.walk import symbols
from dynaflow_dsl.syntax import model as syntax

# More than any group of processes has; asking each takes well below a second.
_MOST_RANKS = 2**14

_LISTED_RANKS = 8


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known where a schedule is compiled for.

    `given` is what the command line says; it goes before `target`, which is what the
    trace target says, None as long as there is no model. `dimensions` are the names of
    the model's dynamic dimensions.
    """

    given: Mapping[str, model.Scalar]
    target: Mapping[str, model.Scalar] | None = None
    dimensions: tuple[str, ...] = ()

    @property
    def known(self) -> Mapping[str, model.Scalar]:
        """All facts."""
        return {**(self.target or {}), **self.given}


def check_names(
    requirement: syntax.Require, dimensions: Iterable[str], parameters: Iterable[str]
) -> Iterator[Diagnostic]:
    """Refuse values that every step has anew; `dimensions` are known to be such."""
    steps = {*STEP_VALUES, *dimensions} - set(parameters)
    for symbol in distinct_symbols(requirement.condition):
        if symbol.name in steps:
            yield _step_value(symbol)


def decide(
    file: model.ScheduleFile, facts: Facts
) -> Result[tuple[model.UsedFact, ...]]:
    """The facts that the requirements of a file read, all of which hold.

    Without a model, a requirement on facts that nobody gave is left open, and that is
    said. There is a value only when no requirement is broken.
    """
    found: list[Diagnostic] = []
    used: dict[str, model.UsedFact] = {}
    wanted: list[model.Schedule | model.Select] = [*file.schedules]
    if file.select is not None:
        wanted.append(file.select)
    for each in wanted:
        for requirement in each.requirements:
            for fact in _decide(requirement, each.parameters, facts, found):
                used[fact.name] = fact
    if any(each.severity is Severity.ERROR for each in found):
        return Result(None, tuple(dict.fromkeys(found)))
    return Result(tuple(used[name] for name in sorted(used)), tuple(found))


def _decide(
    requirement: model.Requirement,
    parameters: Sequence[model.Parameter],
    facts: Facts,
    found: list[Diagnostic],
) -> list[model.UsedFact]:
    """The facts that a requirement reads; what is wrong goes into `found`."""
    scope: dict[str, model.Value | None] = {p.name: p.value for p in parameters}
    used: list[model.UsedFact] = []
    unknown: list[syntax.Symbol] = []
    refused = False
    known = facts.known
    for symbol in distinct_symbols(requirement.condition):
        name = symbol.name
        if name in scope:
            continue
        if name in facts.dimensions:
            found.append(_step_value(symbol))
            refused = True
        elif name in known:
            used.append(model.UsedFact(name, known[name], name in facts.given))
        else:
            unknown.append(symbol)
    if unknown and facts.target is None:
        found.append(_undecided(requirement, unknown))
        return used
    meant = _meant_as_texts(requirement.condition)
    found += (_unknown_fact(symbol, known, meant) for symbol in unknown)
    if unknown or refused:
        return used
    scope |= {fact.name: value_of(fact.value) for fact in used}
    if not _judge(requirement, scope, used, found):
        return used
    return list(_kept(requirement, scope, used, known, found))


def _judge(
    requirement: model.Requirement,
    scope: Mapping[str, model.Value | None],
    used: Sequence[model.UsedFact],
    found: list[Diagnostic],
) -> bool:
    """Say which of the conditions that `and` joins is the first that does not hold.

    Whether all of them do is returned.
    """
    for condition in _conjuncts(requirement.condition):
        match evaluate_condition(condition, found, scope):
            case None:
                return False
            case False:
                found.append(_broken(condition, scope, used))
                return False
    return True


def _kept(
    requirement: model.Requirement,
    scope: Mapping[str, model.Value | None],
    used: Sequence[model.UsedFact],
    known: Mapping[str, model.Scalar],
    found: list[Diagnostic],
) -> Iterator[model.UsedFact]:
    """The facts that loading compares, and a warning where other ranks' are others.

    A requirement that holds on every rank does not read which one it is. Ranks beyond
    those of any machine are not asked one by one: the fact is then compared.
    """
    for fact in used:
        size = known.get(size_of_ranks(fact.name) or "")
        if type(size) is not int or size < 2:
            yield fact
            continue
        if size > _MOST_RANKS:
            yield fact
            continue
        refusing = (
            rank
            for rank in range(size)
            if evaluate_condition(requirement.condition, [], {**scope, fact.name: rank})
            is not True
        )
        # One more than is listed.
        if refused := list(islice(refusing, _LISTED_RANKS + 1)):
            found.append(_one_rank(requirement, fact, size, refused))
            yield fact


def size_of_ranks(name: str) -> str | None:
    """The fact that says how many ranks there are, of one that says which: `tp_size`.

    None for other facts.
    """
    if name == "rank":
        return "world_size"
    prefix, _, rest = name.rpartition("_")
    return f"{prefix}_size" if prefix and rest == "rank" else None


def value_of(fact: model.Scalar) -> model.Value:
    """A fact as expressions compute with it."""
    if not isinstance(fact, float):
        return fact
    return Fraction(repr(fact)) if math.isfinite(fact) else str(fact)


def _conjuncts(condition: syntax.Expression) -> Iterator[syntax.Expression]:
    match condition:
        case syntax.Logical("and", left, right):
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield condition


def distinct_symbols(condition: syntax.Expression) -> tuple[syntax.Symbol, ...]:
    """The names that a condition reads, where each stands first."""
    first: dict[str, syntax.Symbol] = {}
    for symbol in symbols(condition):
        first.setdefault(symbol.name, symbol)
    return tuple(first.values())


def _step_value(symbol: syntax.Symbol) -> Diagnostic:
    return Diagnostic(
        "DFS105",
        f"'{symbol.name}' differs from step to step, and 'require' is decided once",
        Label(symbol.span, "a value of each step"),
        helps=("choose by step with 'when' in a 'select'",),
    )


def _meant_as_texts(condition: syntax.Expression) -> frozenset[syntax.Symbol]:
    """Bare names that another name is compared with: texts without their quotes."""
    found: list[syntax.Symbol] = []
    for each in _comparisons(condition):
        if not isinstance(each.left, syntax.Symbol):
            continue
        match each.operator, each.right:
            case "==" | "!=", syntax.Symbol() as symbol:
                found.append(symbol)
            case "in", syntax.ListOf(items):
                found += (item for item in items if isinstance(item, syntax.Symbol))
    return frozenset(found)


def _comparisons(condition: syntax.Expression) -> Iterator[syntax.Comparison]:
    match condition:
        case syntax.Comparison():
            yield condition
        case syntax.Logical(_, left, right):
            yield from _comparisons(left)
            yield from _comparisons(right)
        case syntax.Not(operand):
            yield from _comparisons(operand)


def _unknown_fact(
    symbol: syntax.Symbol,
    known: Mapping[str, object],
    meant_as_texts: Collection[syntax.Symbol],
) -> Diagnostic:
    name = symbol.name
    return Diagnostic(
        "DFS106",
        f"there is no fact '{name}'",
        Label(symbol.span, "neither a parameter nor a fact of the model"),
        helps=(
            *((_in_quotes(name),) if symbol in meant_as_texts else ()),
            *suggestions(name, known),
            *ways_to_say(name),
        ),
    )


def _in_quotes(name: str) -> str:
    return f'if {name} is a text, write "{name}"'


def ways_to_say(name: str) -> tuple[str, ...]:
    """How a fact comes to be known."""
    return (
        f"say what it is: -F {name}=VALUE",
        f'or let the trace target say it: TraceSpec(facts={{"{name}": VALUE}})',
    )


def _undecided(
    requirement: model.Requirement, unknown: Sequence[syntax.Symbol]
) -> Diagnostic:
    texts = _meant_as_texts(requirement.condition)
    names = ", ".join(symbol.name for symbol in unknown)
    options = " ".join(f"-F {symbol.name}=VALUE" for symbol in unknown)
    file = requirement.span.source.name
    return Diagnostic(
        "DFS116",
        "this requirement was not decided",
        Label(requirement.condition.span, f"reads what is not known here: {names}"),
        helps=(
            *(_in_quotes(symbol.name) for symbol in unknown if symbol in texts),
            f"say it: {options}",
            f"or take it from the model: dfsc trace {file}",
        ),
        severity=Severity.INFO,
    )


def _one_rank(
    requirement: model.Requirement,
    fact: model.UsedFact,
    size: int,
    refused: Sequence[int],
) -> Diagnostic:
    place = next(
        symbol.span
        for symbol in distinct_symbols(requirement.condition)
        if symbol.name == fact.name
    )
    listed = ", ".join(map(str, refused[:_LISTED_RANKS]))
    listed += ", ..." if len(refused) > _LISTED_RANKS else ""
    which = f"rank {listed}" if len(refused) == 1 else f"ranks {listed}"
    return Diagnostic(
        "DFS118",
        f"other ranks cannot load what '{fact.name}' is required of",
        Label(place, f"{written(value_of(fact.value))} here, and another one on each"),
        notes=(
            f"{size_of_ranks(fact.name)} is {size}, and on {which} this does not hold: "
            f"the module is made for rank {written(value_of(fact.value))} alone, and "
            "the others refuse to load it (DFS809)",
        ),
        helps=("all ranks run one module: ask for what they share",),
        severity=Severity.WARNING,
    )


def _broken(
    condition: syntax.Expression,
    scope: Mapping[str, model.Value | None],
    used: Sequence[model.UsedFact],
) -> Diagnostic:
    origins = {
        fact.name: "from -F" if fact.given else "a fact of the model" for fact in used
    }
    notes = []
    for symbol in distinct_symbols(condition):
        value = scope[symbol.name]
        if value is not None:
            origin = origins.get(symbol.name, "a parameter")
            notes.append(f"{symbol.name} is {written(value)}, {origin}")
    return Diagnostic(
        "DFS115",
        "this requirement does not hold",
        Label(condition.span, "false"),
        notes=tuple(notes),
        helps=("this schedule is for other models: choose another one here",),
    )
