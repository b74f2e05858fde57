"""Syntax tree to schedules: every name looked up, every timeline written out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from dynaflow_dsl.diagnostics import Diagnostic, Label, Result
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.digest import meaning_digest
from dynaflow_dsl.resolve.findings import Names, given_twice, not_yet
from dynaflow_dsl.resolve.groups import Groups, check_group
from dynaflow_dsl.resolve.imports import (
    Imported,
    Reader,
    nothing_to_import,
    read_imports,
)
from dynaflow_dsl.resolve.parameters import check_given
from dynaflow_dsl.resolve.schedule import ScheduleResolver
from dynaflow_dsl.resolve.values import evaluate, wrong_value
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import SyntaxTree
from dynaflow_dsl.syntax import model as syntax


def resolve(
    tree: SyntaxTree,
    imports: Reader = nothing_to_import,
    parameters: Mapping[str, str] | None = None,
) -> Result[model.ScheduleFile]:
    """What a file says.

    `imports` reads the files that it imports, and `parameters` are what the command
    line sets, in its words. There is a value only when nothing is wrong. Statements
    that the language has and this release has not are errors (DFS020), never passed
    over.
    """
    found: list[Diagnostic] = []
    given = parameters or {}
    reference = _model(tree.model, found) if tree.model else None
    names = Names(found)
    imported = read_imports(tree, imports, names, found)
    groups = _groups(tree, imported, names, found)
    written = [each for each in tree.declarations if isinstance(each, syntax.Schedule)]
    schedules = []
    for each in written:
        schedule = ScheduleResolver(each, groups, given, found).resolve()
        if schedule is not None:
            schedules.append(schedule)
    found += check_given(given, written)
    found += _unused(tree, imported)
    if found:
        return Result(None, _in_order(tree.source, found))
    digest = meaning_digest(reference, schedules)
    file = model.ScheduleFile(
        reference, tuple(schedules), digest, tuple(sorted(given.items()))
    )
    return Result(file)


def _groups(
    tree: SyntaxTree, imported: Imported, names: Names, found: list[Diagnostic]
) -> Groups:
    """All groups that the file can use; declares the names at its top."""
    groups = dict(imported.groups)
    schedules = {name: each.name for name, each in imported.schedules.items()}
    for declaration in tree.declarations:
        match declaration:
            case syntax.Schedule(declared):
                names.declare("schedule", declared)
                schedules.setdefault(declared.text, declared)
            case syntax.PartGroup(declared):
                names.declare("group of parts", declared)
                groups.setdefault(declared.text, declaration)
            case syntax.Kernel():
                found.append(not_yet("'kernel'", declaration.span))
            case syntax.Select():
                found.append(not_yet("'select'", declaration.span))
    known = {*groups, *schedules}
    broken = {name for name in imported.places if name not in known}
    for name, group in groups.items():
        mistakes = list(check_group(group))
        found += mistakes
        if mistakes:
            broken.add(name)
    sound = {name: group for name, group in groups.items() if name not in broken}
    return Groups(sound, frozenset(broken), schedules)


def _unused(tree: SyntaxTree, imported: Imported) -> Iterator[Diagnostic]:
    """Every statement has an effect: an import that nothing uses has none."""
    used = set(_uses(tree))
    for name, span in imported.places.items():
        if name in used:
            continue
        if name in imported.groups:
            way = f"remove it, or write 'use {name}' in an 'each'"
        elif name in imported.schedules:
            way = "remove it: only 'select' takes a schedule of another file"
        else:
            continue
        yield Diagnostic(
            "DFS103",
            f"'{name}' is imported and never used",
            Label(span, "no statement takes it"),
            helps=(way,),
        )


def _uses(tree: SyntaxTree) -> Iterator[str]:
    """The names that statements take from the top of the file."""
    for declaration in tree.declarations:
        match declaration:
            case syntax.Schedule(statements=statements):
                for statement in statements:
                    inside = (
                        statement.body if isinstance(statement, syntax.Each) else ()
                    )
                    for each in (statement, *inside):
                        if isinstance(each, syntax.Use):
                            yield each.name.text
            case syntax.Select(cases=cases, otherwise=otherwise):
                yield from (case.choice.name.text for case in cases)
                yield otherwise.choice.name.text


def _in_order(main: Source, found: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """As a reader meets them: by place in the file, what is in other files first.

    Text that a `use` brought counts where the `use` is.
    """
    ranks: dict[Source, int] = {main: len(found) + 1}

    def place(diagnostic: Diagnostic) -> tuple[int, int]:
        if diagnostic.primary is None:
            return 0, 0
        span = diagnostic.primary.span
        outer = span.uses[-1] if span.uses else span
        return ranks.setdefault(outer.source, len(ranks)), outer.start

    return tuple(sorted(found, key=place))


def _model(line: syntax.Model, found: list[Diagnostic]) -> model.ModelReference:
    arguments: dict[str, model.Scalar] = {}
    spans: dict[str, syntax.Name] = {}
    for option in line.options:
        name = option.name
        if name.text in spans:
            what = f"argument '{name.text}'"
            found.append(given_twice(what, name.span, spans[name.text].span))
        spans[name.text] = name
        value = evaluate(option.value, found, {})
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
