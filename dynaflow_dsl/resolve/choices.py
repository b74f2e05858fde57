"""What a `select` chooses in each entry of a model, decided once facts are known."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

from dynaflow_dsl.diagnostics import Diagnostic, Label, Result
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import suggestions, unknown_name
from dynaflow_dsl.resolve.folding import Folder, Scope, assuming
from dynaflow_dsl.resolve.intervals import find_sizes
from dynaflow_dsl.resolve.requirements import (
    Facts,
    distinct_symbols,
    value_of,
    ways_to_say,
)
from dynaflow_dsl.resolve.select import PHASE
from dynaflow_dsl.resolve.split import least_rows, never_cut
from dynaflow_dsl.syntax import model as syntax

# Facts that say how many ranks run the same steps together.
RANKS = ("tp_size", "ep_size", "dp_size", "pp_size", "world_size")
# Comparisons with facts whose every outcome is looked at, for lines that the facts of
# one model rule out.
MOST_OPEN = 8

Condition: TypeAlias = bool | syntax.Expression


@dataclass(frozen=True, slots=True)
class EntrySizes:
    """The sizes of one entry: bounds of those that differ by step, and the others.

    `groups` are the process groups of its collectives.
    """

    name: str
    dimensions: tuple[tuple[str, int, int | None], ...]
    fixed: tuple[tuple[str, int], ...] = ()
    phases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChosenLine:
    """A line that some step of an entry reaches.

    `line` counts the lines of the `select`; `condition` is what is left of it, None
    where nothing is. `example` are sizes of a step that gets there, empty when unknown.
    """

    line: int
    condition: syntax.Expression | None
    example: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class EntryChoices:
    """The lines that steps of one entry reach, in order; the last takes what is left.

    `sizes` are the dimensions that differ from step to step.
    """

    entry: str
    sizes: tuple[str, ...]
    lines: tuple[ChosenLine, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a `select` chooses in every entry, and the facts that its lines read."""

    select: model.Select
    entries: tuple[EntryChoices, ...]
    facts: tuple[model.UsedFact, ...]

    def schedules(self, entry: str) -> frozenset[str]:
        """The schedules that steps of an entry run."""
        lines = self.select.lines
        return frozenset(
            name
            for choices in self.entries
            if choices.entry == entry
            for chosen in choices.lines
            if (name := lines[chosen.line].schedule) is not None
        )


def choose(
    select: model.Select,
    facts: Facts,
    entries: Sequence[EntrySizes],
    splits: Mapping[str, model.Split] | None = None,
    elsewhere: Sequence[str] | None = None,
) -> Result[Selection]:
    """Decide what steps of each entry choose; a value comes when nothing is wrong.

    `splits` are those of schedules by name. Warns of lines that choose one for steps
    with too few rows alone (DFS322). Where entries come one by one, `elsewhere` names
    those that are not here: lines that nothing here chooses may be for them.
    """
    found = list(_check_names(select, facts, entries, elsewhere or ()))
    if found:
        return Result(None, tuple(found))
    used = _used_facts(select, facts, entries)
    found += _check_ranks(select, facts, entries)
    values = {p.name: p.value for p in select.parameters}
    known = {fact.name: value_of(fact.value) for fact in used}
    by_entry: list[list[Condition]] = []
    for entry in entries:
        scope = _scope({**known, **values}, entry)
        by_entry.append(_fold(select, scope, entry, entries, found))
    if found:
        return Result(None, tuple(dict.fromkeys(found)))
    reached = [
        list(_reached(conditions, entry))
        for conditions, entry in zip(by_entry, entries, strict=True)
    ]
    ever = {line for lines in reached for line, _ in lines}
    for line in range(len(select.lines) if elsewhere is None else 0):
        if line not in ever and not _ever_reached(select, line, values, known, entries):
            found.append(_unreachable(select, line, by_entry, entries))
    if found:
        return Result(None, tuple(found))
    return Result(
        Selection(
            select,
            tuple(
                EntryChoices(
                    entry.name,
                    tuple(name for name, _, _ in entry.dimensions),
                    _lines(lines, conditions),
                )
                for entry, conditions, lines in zip(
                    entries, by_entry, reached, strict=True
                )
            ),
            used,
        ),
        tuple(_never_cut(select, reached, by_entry, entries, splits or {}))
        if elsewhere is None
        else (),
    )


def _never_cut(
    select: model.Select,
    reached: Sequence[Sequence[tuple[int, Mapping[str, int]]]],
    by_entry: Sequence[Sequence[Condition]],
    entries: Sequence[EntrySizes],
    splits: Mapping[str, model.Split],
) -> Iterator[Diagnostic]:
    """Lines whose every step has too few rows for the split that they choose."""
    for line, written in enumerate(select.lines):
        split = splits.get(written.schedule or "")
        if split is None:
            continue
        least = least_rows(split)
        cut, tried = False, False
        for entry, conditions, lines in zip(entries, by_entry, reached, strict=True):
            bounds = _range(entry)
            low, high = bounds.get(split.dimension, (0, 0))
            if line not in dict(lines) or (high is not None and high < least):
                continue
            tried = True
            bounds[split.dimension] = (max(low, least), high)
            found = find_sizes(conditions[line], conditions[:line], bounds)
            cut = cut or found is not False
        if tried and not cut:
            here = (Label(split.span, "cut here"),)
            said = "chosen for smaller steps alone"
            yield never_cut(split, written.span, said, here)


def _lines(
    reached: Sequence[tuple[int, Mapping[str, int]]], conditions: Sequence[Condition]
) -> tuple[ChosenLine, ...]:
    chosen = []
    for position, (line, example) in enumerate(reached):
        condition = conditions[line]
        last = position == len(reached) - 1
        chosen.append(
            ChosenLine(
                line,
                None if last or isinstance(condition, bool) else condition,
                tuple(example.items()),
            )
        )
    return tuple(chosen)


# ---- names ---------------------------------------------------------------------------


def _sizes(entries: Sequence[EntrySizes]) -> dict[str, str]:
    """Names of sizes that some entry has, with the first one that has it."""
    return {
        name: entry.name
        for entry in reversed(entries)
        for name in (*(d[0] for d in entry.dimensions), *(f[0] for f in entry.fixed))
    }


def _check_names(
    select: model.Select,
    facts: Facts,
    entries: Sequence[EntrySizes],
    elsewhere: Sequence[str],
) -> Iterator[Diagnostic]:
    sizes = set(_sizes(entries))
    names = [*(entry.name for entry in entries), *elsewhere]
    for phase in select.phases:
        if phase.text not in names:
            unknown = unknown_name("entry", phase.text, phase.span, names)
            yield _also_a_phase(unknown, phase.text, entries)
    for name in select.equal:
        if name.text not in sizes and name.text != PHASE:
            choices = (*sizes, PHASE)
            yield unknown_name("value of a step", name.text, name.span, choices)
    parameters = {parameter.name for parameter in select.parameters}
    known = facts.known
    for symbol in _symbols(select):
        if symbol.name in parameters | sizes | {PHASE} or symbol.name in known:
            continue
        choices = (*parameters, *sizes, PHASE, *known)
        unknown = Diagnostic(
            "DFS106",
            f"there is no size and no fact '{symbol.name}'",
            Label(symbol.span, "not a size of a step, a fact or a parameter"),
            helps=(
                *suggestions(symbol.name, choices),
                *ways_to_say(symbol.name),
            ),
        )
        yield _also_a_phase(unknown, symbol.name, entries)


def _also_a_phase(
    unknown: Diagnostic, name: str, entries: Sequence[EntrySizes]
) -> Diagnostic:
    """A name that pieces of a split have, and that no condition can read."""
    for entry in entries:
        for dimension, phases in entry.phases:
            if name in phases:
                note = (
                    f"'{name}' is a phase of {dimension} in the entry '{entry.name}': "
                    f"'split {dimension} into [{', '.join(phases)}]' cuts there, and "
                    "conditions read whole dimensions"
                )
                return replace(unknown, notes=(*unknown.notes, note))
    return unknown


def _symbols(select: model.Select) -> Iterator[syntax.Symbol]:
    for line in select.lines:
        if line.condition is not None:
            yield from distinct_symbols(line.condition)


def _used_facts(
    select: model.Select, facts: Facts, entries: Sequence[EntrySizes]
) -> tuple[model.UsedFact, ...]:
    """The facts that conditions read; parameters and sizes go before them."""
    hidden = {p.name for p in select.parameters} | {*_sizes(entries)} | {PHASE}
    names = {symbol.name for symbol in _symbols(select)} - hidden
    return tuple(
        model.UsedFact(name, facts.known[name], name in facts.given)
        for name in sorted(names)
    )


def _check_ranks(
    select: model.Select, facts: Facts, entries: Sequence[EntrySizes]
) -> Iterator[Diagnostic]:
    """Several ranks must choose alike, or their collectives wait for each other."""
    several = [
        f"{name} is {value}"
        for name in RANKS
        if isinstance(value := facts.known.get(name), int) and value > 1
    ]
    several += [
        f"the model has collectives of the group '{group}'"
        for group in dict.fromkeys(g for entry in entries for g in entry.groups)
    ]
    if not several:
        return
    names = {parameter.name for parameter in select.parameters} | {*_sizes(entries)}
    for symbol in _by_rank(select, names):
        yield Diagnostic(
            "DFS122",
            f"ranks have different values of '{symbol.name}'",
            Label(symbol.span, "read here"),
            notes=(f"{several[0]}, and all ranks must choose the same schedule",),
            helps=("choose by a size of the step, or by a fact that all ranks share",),
        )
    differ = {name for entry in entries for name, _, _ in entry.dimensions}
    if len(entries) > 1:
        differ.add(PHASE)
    differ -= {parameter.name for parameter in select.parameters}
    differ -= {name.text for name in select.equal}
    seen: set[str] = set()
    for symbol in _symbols(select):
        if symbol.name in differ and symbol.name not in seen:
            seen.add(symbol.name)
            yield Diagnostic(
                "DFS122",
                f"ranks may see different values of '{symbol.name}'",
                Label(symbol.span, "read here"),
                notes=(f"{several[0]}, and all ranks must choose the same schedule",),
                helps=(f"add 'equal {symbol.name}' if it is the same on all ranks",),
            )


def _by_rank(select: model.Select, hidden: Collection[str]) -> Iterator[syntax.Symbol]:
    """Facts that say which rank it is, such as `tp_rank`: the first of each name."""
    seen = set(hidden)
    for symbol in _symbols(select):
        if symbol.name not in seen and re.fullmatch(r"(\w+_)?rank", symbol.name):
            seen.add(symbol.name)
            yield symbol


# ---- conditions ----------------------------------------------------------------------


def _scope(
    values: Mapping[str, model.Value | None],
    entry: EntrySizes,
    open_names: frozenset[str] = frozenset(),
) -> Scope:
    # Sizes go before facts of the same name, parameters before both: `values` holds
    # facts and parameters, of which a parameter never has the name of a size.
    fixed: dict[str, model.Value | None] = dict(entry.fixed)
    bounds = {name: (low, high) for name, low, high in entry.dimensions}
    kept = {n: v for n, v in values.items() if n not in bounds and n not in fixed}
    return Scope({**kept, **fixed, PHASE: entry.name}, bounds, open_names)


def _fold(
    select: model.Select,
    scope: Scope,
    entry: EntrySizes,
    entries: Sequence[EntrySizes],
    found: list[Diagnostic],
) -> list[Condition]:
    """The condition of each line in one entry; that of `else` is true."""
    folder = Folder(scope, entry.name, found, _sizes(entries))
    conditions: list[Condition] = []
    for line in select.lines:
        if line.condition is None:
            conditions.append(True)
            continue
        condition = folder.condition(line.condition)
        conditions.append(False if condition is None else condition)
    return conditions


def _reached(
    conditions: Sequence[Condition], entry: EntrySizes
) -> Iterator[tuple[int, Mapping[str, int]]]:
    bounds = {name: (low, high) for name, low, high in entry.dimensions}
    for line, condition in enumerate(conditions):
        sizes = find_sizes(condition, conditions[:line], bounds)
        if sizes is not False:
            yield line, {} if sizes is True else sizes


def _ever_reached(
    select: model.Select,
    line: int,
    values: Mapping[str, model.Value | None],
    facts: Mapping[str, model.Value],
    entries: Sequence[EntrySizes],
) -> bool:
    """Whether a line would be reached in a model with other facts.

    A file may serve several models; such a line is no mistake, and makes no class.
    """
    for entry in entries:
        scope = _scope(values, entry, frozenset(facts))
        folder = Folder(scope, entry.name, [], _sizes(entries))
        conditions: list[Condition] = []
        for each in select.lines[: line + 1]:
            folded = (
                True if each.condition is None else folder.condition(each.condition)
            )
            # What only these facts make wrong was not found with the model's own.
            conditions.append(False if folded is None else folded)
        if len(folder.opened) > MOST_OPEN:
            return True
        bounds = {name: (low, high) for name, low, high in entry.dimensions}
        for outcome in product((True, False), repeat=len(folder.opened)):
            truths = dict(zip(folder.opened, outcome, strict=True))
            assumed = [assuming(each, truths) for each in conditions]
            if find_sizes(assumed[-1], assumed[:-1], bounds) is not False:
                return True
    return False


# ---- messages ------------------------------------------------------------------------


def _unreachable(
    select: model.Select,
    line: int,
    by_entry: Sequence[Sequence[Condition]],
    entries: Sequence[EntrySizes],
) -> Diagnostic:
    written = select.lines[line]
    notes = tuple(_bounds(entry) for entry in entries)
    never = all(
        find_sizes(conditions[line], (), _range(entry)) is False
        for conditions, entry in zip(by_entry, entries, strict=True)
    )
    if never:
        return Diagnostic(
            "DFS120",
            "this line is never chosen",
            Label(written.span, "its condition holds for no step"),
            notes=notes,
            helps=("change the condition, or remove the line",),
        )
    cause = next(
        (
            earlier
            for earlier in range(line)
            if all(
                find_sizes(c[line], (c[earlier],), _range(entry)) is False
                for c, entry in zip(by_entry, entries, strict=True)
            )
        ),
        None,
    )
    others: tuple[Label, ...] = ()
    if cause is not None:
        others = (
            Label(select.lines[cause].span, "takes every step that would get here"),
        )
    way = "put it above the lines that take its steps, or remove it"
    if written.condition is None:
        way = "make the line above the 'else': it takes all steps that are left"
    return Diagnostic(
        "DFS120",
        "this line is never chosen",
        Label(written.span, "lines above take all of its steps"),
        others,
        notes=notes,
        helps=(way,),
    )


def _range(entry: EntrySizes) -> dict[str, tuple[int, int | None]]:
    return {name: (low, high) for name, low, high in entry.dimensions}


def _bounds(entry: EntrySizes) -> str:
    sizes = [
        f"{name} from {low}" + ("" if high is None else f" to {high}")
        for name, low, high in entry.dimensions
    ]
    sizes += [f"{name} always {size}" for name, size in entry.fixed]
    return f"entry {entry.name}: {', '.join(sizes) or 'no sizes'}"
