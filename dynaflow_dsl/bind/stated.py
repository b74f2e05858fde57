"""`part experts (rowwise = true)`: what the file states and no rule proves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.fragments import Fragment, Fragments
from dynaflow_dsl.bind.model import Binding, Place, StatedRows
from dynaflow_dsl.bind.ownership import Owner
from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity
from dynaflow_dsl.graph.rowwise import Refusal, RowCheck, RowNumbers, Rows
from dynaflow_dsl.graph.rowwise.sizes import ONE
from dynaflow_dsl.operations.rows import (
    DeclarationError,
    PluginError,
    declared_rows,
)
from dynaflow_dsl.resolve.model import Part, Schedule
from dynaflow_dsl.source import Span


def stating_parts(schedule: Schedule) -> Mapping[str, Part]:
    """The parts that state that they are row-wise."""
    return {part.name: part for part in schedule.parts if part.rowwise is not None}


def stated_unsplit(schedule: Schedule, joined: Collection[str]) -> Iterator[Diagnostic]:
    """DFS604: a part that never runs in pieces has no rows to keep apart."""
    for part in stating_parts(schedule).values():
        assert part.rowwise is not None
        if part.fetches:
            why, help_ = "it brings weights, which have no rows", "remove the option"
        elif schedule.split is None:
            why, help_ = "there is no 'split'", "remove the option, or add a 'split'"
        elif part.name in joined:
            why = f"{part.name}[*] runs once over all pieces"
            help_ = f"remove the option, or run {part.name} for each piece"
        else:
            continue
        yield Diagnostic(
            "DFS604",
            f"part {part.name} is not split, so 'rowwise' says nothing",
            Label(part.rowwise, why),
            helps=(help_,),
        )


def broken_plugin(schedule: Schedule) -> Iterator[Diagnostic]:
    """DFS117: plug-ins that say how operators treat rows, where that is asked."""
    if schedule.split is None and not schedule.captures:
        return
    place = schedule.split.span if schedule.split else schedule.captures[0].span
    try:
        declared_rows()
    except PluginError as error:
        message = f"plug-in '{error.name}' cannot be imported"
        note = f"{error.place}: {error}"
    except DeclarationError as error:
        message, note = "plug-ins contradict each other", f"{error}"
    else:
        return
    yield Diagnostic(
        "DFS117",
        message,
        Label(place, "plug-ins may say how operators treat rows"),
        notes=(note,),
        helps=("repair the package that brings it, or uninstall it",),
    )


def stated_operations(
    schedule: Schedule, inner: Mapping[Owner, Fragment], dependence: Dependence
) -> Mapping[str, Place]:
    """The operations of which parts state something, copied views included, and where.

    What parts of one iteration hand each other is their own; an iteration as a whole
    gives and takes rows.
    """
    sections = {
        part.name: number
        for number, section in enumerate(schedule.sections)
        for part in section.parts
        if part.rowwise is not None
    }
    return {
        dependence.operations[number].name: Place(sections[owner.part], owner.iteration)
        for owner, fragment in inner.items()
        if owner.part in sections
        for number in fragment.numbers
    }


def as_if_stated(schedule: Schedule, name: str) -> Schedule:
    """The schedule with one more part that says `rowwise = true`."""

    def told(part: Part) -> Part:
        return replace(part, rowwise=part.selector.span) if part.name == name else part

    sections = (
        replace(section, parts=tuple(map(told, section.parts)))
        for section in schedule.sections
    )
    return replace(schedule, sections=tuple(sections))


def stated_rows(
    schedule: Schedule,
    inner: Mapping[Owner, Fragment],
    fragments: Fragments,
    dependence: Dependence,
    check: RowCheck,
) -> tuple[tuple[StatedRows, ...], list[Diagnostic]]:
    """What is stated, one for each run of parts that hand private values on.

    Says where a statement is about values that cannot be handed in by pieces of
    their own.
    """
    parts = stating_parts(schedule)
    owners = [owner for owner in inner if owner.part in parts]
    relied: dict[Owner, list[Refusal]] = defaultdict(list)
    for refusal in check.relied:
        number = dependence.number[refusal.operation]
        for owner in owners:
            if number in inner[owner].numbers:
                relied[owner].append(refusal)
                break
    found: list[Diagnostic] = []
    groups = _groups(owners, inner, fragments, check.private)
    stated = []
    for group in groups:
        reasons = [refusal for owner in group for refusal in relied[owner]]
        if not reasons:
            continue
        names = frozenset(
            dependence.operations[number].name
            for owner in group
            for number in inner[owner].numbers
        )
        found += _uncut(parts, group, inner, fragments, check)
        made = {
            value.name
            for number in {n for owner in group for n in inner[owner].numbers}
            for value in dependence.operations[number].results
            if value is not None
        }
        results = [name for name in check.claimed if name in made]
        written = [name for name, writer in check.written.items() if writer in names]
        stated.append(
            StatedRows(
                parts=tuple(dict.fromkeys(owner.part for owner in group)),
                operations=names,
                results=tuple(results),
                written=tuple(written),
                relied=tuple(reasons),
                module=dependence.operations[
                    dependence.number[reasons[0].operation]
                ].module,
            )
        )
    stated += _declared(inner, dependence, check)
    return tuple(stated), found


def _declared(
    inner: Mapping[Owner, Fragment], dependence: Dependence, check: RowCheck
) -> Iterator[StatedRows]:
    """What plug-ins declare of operations that parts run on rows."""
    homes = {
        number: owner.part
        for owner, fragment in inner.items()
        for number in fragment.numbers
    }
    said = dict.fromkeys(check.declared, "a plug-in declares how it treats rows")
    said |= dict.fromkeys(
        check.disjoint, "the target says that pieces write places of their own"
    )
    for name, reason in said.items():
        number = dependence.number[name]
        operation = dependence.operations[number]
        results = [value.name for value in operation.results if value is not None]
        results += [name for name in operation.writes if name in dependence.producer]
        yield StatedRows(
            parts=(homes[number],),
            operations=frozenset({name}),
            results=tuple(results),
            written=operation.writes,
            relied=(Refusal(name, reason),),
            module=operation.module,
            source="target" if name in check.disjoint else "plug-in",
        )


def _groups(
    owners: list[Owner],
    inner: Mapping[Owner, Fragment],
    fragments: Fragments,
    private: frozenset[str],
) -> list[list[Owner]]:
    """Owners that hand each other what belongs to one microbatch, put together."""
    group_of = {owner: [owner] for owner in owners}
    for owner in owners:
        for name in inner[owner].inputs:
            maker = fragments.maker.get(name)
            if maker not in group_of or maker.iteration != owner.iteration:
                continue
            if name not in private:
                continue
            one, other = group_of[maker], group_of[owner]
            if one is not other:
                one += other
                for moved in other:
                    group_of[moved] = one
    return list({id(group): group for group in group_of.values()}.values())


def needless_statements(bindings: Sequence[Binding]) -> Iterator[Diagnostic]:
    """DFS605: parts of which nothing had to be stated, in any entry."""
    needed: dict[Span, bool] = {}
    for binding in bindings:
        relied = {
            part for one in binding.stated if one.source == "file" for part in one.parts
        }
        for name, part in stating_parts(binding.schedule).items():
            assert part.rowwise is not None
            before = needed.get(part.rowwise, False)
            needed[part.rowwise] = before or name in relied
    for binding in bindings:
        for name, part in stating_parts(binding.schedule).items():
            if part.rowwise is not None and not needed.pop(part.rowwise, True):
                yield Diagnostic(
                    "DFS605",
                    f"part {name} is proved to be row-wise without 'rowwise'",
                    Label(part.rowwise, "not needed"),
                    severity=Severity.INFO,
                    helps=("remove it: a proof holds for all numbers",),
                )


def _uncut(
    parts: Mapping[str, Part],
    group: list[Owner],
    inner: Mapping[Owner, Fragment],
    fragments: Fragments,
    check: RowCheck,
) -> Iterator[Diagnostic]:
    """DFS606: what enters is rows of its piece, but not one block of the whole."""
    for owner in group:
        for name in inner[owner].inputs:
            fact = check.facts.get(name)
            apart = isinstance(fact, Rows) and fact.outer != ONE
            if fragments.maker.get(name) in group or not (
                apart or isinstance(fact, RowNumbers)
            ):
                continue
            part = parts[owner.part]
            assert part.rowwise is not None
            yield Diagnostic(
                "DFS606",
                f"part {owner.part} reads {name}, whose rows do not lie together",
                Label(part.rowwise, "so the statement cannot be checked by numbers"),
                helps=("let the part begin where its inputs are whole rows",),
            )
