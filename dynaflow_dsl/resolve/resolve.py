"""Syntax tree to schedules: every name looked up, every timeline written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

from dynaflow_dsl.diagnostics import Diagnostic, Label, Result
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.digest import meaning_digest
from dynaflow_dsl.resolve.findings import given_twice
from dynaflow_dsl.resolve.imports import (
    Imported,
    Reader,
    nothing_to_import,
    read_files,
)
from dynaflow_dsl.resolve.kernels import unused_kernels
from dynaflow_dsl.resolve.parameters import Setting, check_given, on_command_line
from dynaflow_dsl.resolve.schedule import ScheduleResolver
from dynaflow_dsl.resolve.scopes import Scopes
from dynaflow_dsl.resolve.select import resolve_select
from dynaflow_dsl.resolve.values import evaluate, wrong_value
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import SyntaxTree
from dynaflow_dsl.syntax import model as syntax


def resolve(
    tree: SyntaxTree,
    imports: Reader = nothing_to_import,
    parameters: Mapping[str, str] | None = None,
    place: Callable[[str], str] = on_command_line,
) -> Result[model.ScheduleFile]:
    """What a file says.

    `imports` reads the files that it imports, and `parameters` are what is set from
    outside, in words of a command line; `place` says where it is, by its name. There is
    a value only when nothing is wrong.
    """
    found: list[Diagnostic] = []
    texts = parameters or {}
    given = {name: Setting(text, place(name)) for name, text in texts.items()}
    reference = _model(tree.model, found) if tree.model else None
    scopes = Scopes(read_files(tree, imports, found), found)
    scope = scopes.of(tree.source)
    selects = [each for each in tree.declarations if isinstance(each, syntax.Select)]
    written = [each for each in tree.declarations if isinstance(each, syntax.Schedule)]
    select = None
    if selects:
        for again in selects[1:]:
            found.append(_second_select(again, selects[0]))
        select, schedules = resolve_select(selects[0], scope, scopes, given, found)
        found += check_given(given, selects[:1])
        found += _not_chosen(selects[0], written)
    else:
        resolved = [
            ScheduleResolver(each, scope.groups, given, found, scopes.kernels).resolve()
            for each in written
        ]
        schedules = tuple(each for each in resolved if each is not None)
        found += check_given(given, written)
    if selects or written:
        # A file without schedules is for others to import from.
        own = {n: k for n, k in scope.kernels.items() if n not in scope.imported.places}
        found += unused_kernels(own, scopes.kernels.used | _named(tree, own))
    found += _unused(tree, scope.imported)
    if found:
        return Result(None, _in_order(tree.source, list(dict.fromkeys(found))))
    digest = meaning_digest(reference, schedules, select)
    file = model.ScheduleFile(
        reference, schedules, digest, tuple(sorted(texts.items())), select
    )
    return Result(file)


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
        elif name in imported.kernels:
            way = f"remove it, or write 'part NAME via {name} = ...'"
        else:
            continue
        yield Diagnostic(
            "DFS103",
            f"'{name}' is imported and never used",
            Label(span, "no statement takes it"),
            helps=(way,),
        )


def _not_chosen(
    select: syntax.Select, schedules: Sequence[syntax.Schedule]
) -> Iterator[Diagnostic]:
    """A file with a `select` makes a module of what that chooses, and nothing else."""
    chosen = {case.choice.name.text for case in select.cases}
    chosen.add(select.otherwise.choice.name.text)
    for schedule in schedules:
        if schedule.name.text not in chosen:
            yield Diagnostic(
                "DFS103",
                f"schedule '{schedule.name.text}' is never chosen",
                Label(schedule.name.span, "no line takes it"),
                (Label(select.name.span, "this select chooses for the whole file"),),
                helps=("choose it in a line, or move it into a file of its own",),
            )


def _named(tree: SyntaxTree, kernels: Mapping[str, syntax.Kernel]) -> set[Span]:
    """The kernels that some `via` of the file names, also in a group without a use."""
    return {kernels[name].span for name in _uses(tree) if name in kernels}


def _second_select(again: syntax.Select, first: syntax.Select) -> Diagnostic:
    return Diagnostic(
        "DFS107",
        "a file has one 'select'",
        Label(again.name.span, "a second one"),
        (Label(first.name.span, "the first one"),),
        helps=("put it into a file of its own: each file makes one module",),
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
                        if isinstance(each, syntax.Part) and each.via is not None:
                            yield each.via.name.text
            case syntax.PartGroup(parts=parts):
                yield from (part.via.name.text for part in parts if part.via)
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
