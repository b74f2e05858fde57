"""Syntax tree to outline: what a file declares, in texts that can be compared.

It works on what is written, so that a change of one parameter is one change, whatever
follows from it, and so that statements which this release does not have are compared as
well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dynaflow_dsl.comparison.model import (
    FileOutline,
    Item,
    Outline,
    Part,
    Scope,
    Timeline,
    Window,
)
from dynaflow_dsl.formatting.expressions import (
    arguments,
    call,
    expression,
    list_of,
    selector,
    value,
)
from dynaflow_dsl.formatting.model import flat
from dynaflow_dsl.formatting.statements import first_line, step_text
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import SyntaxTree
from dynaflow_dsl.syntax import model as syntax

Groups = Mapping[str, syntax.PartGroup]


def outline(tree: SyntaxTree | None, imported: Groups) -> FileOutline:
    """What a file declares, nothing when there is none. `imported` are groups of other
    files that it uses.
    """
    if tree is None:
        return FileOutline(Outline("", "", Span(Source("", ""), 0, 0)), {})
    groups = {**imported}
    for each in tree.declarations:
        if isinstance(each, syntax.PartGroup):
            groups[each.name.text] = each
    found: dict[tuple[str, str], Outline] = {}
    for declaration in tree.declarations:
        made = _declaration(declaration, groups)
        earlier = found.setdefault((made.kind, made.name), made)
        if made.kind == "from" and earlier is not made:
            names = {**earlier.named["name"], **made.named["name"]}
            found["from", made.name] = replace(earlier, named={"name": names})
    return FileOutline(_head(tree), found)


def _head(tree: SyntaxTree) -> Outline:
    nowhere = Span(tree.source, 0, 0)
    line = tree.model
    if line is None:
        return Outline("", "", nowhere)
    target = Item("model", f'"{line.target.value}"', line.span)
    named = {"model": {"model": target}, "argument": _options(line.options)}
    return Outline("", "", line.span, named)


def _declaration(node: syntax.Declaration, groups: Groups) -> Outline:
    match node:
        case syntax.Import(file, names, span):
            listed = {name.text: Item(name.text, "", name.span) for name in names}
            return Outline("from", f'"{file.value}"', span, {"name": listed})
        case syntax.Kernel(name, target, options, span):
            named = {
                "target": {"": Item("", f'"{target.value}"', target.span)},
                "option": _options(options),
            }
            return Outline("kernel", name.text, span, named)
        case syntax.PartGroup(name, parts, span):
            made = {part.name.text: _part(part) for part in parts}
            return Outline(
                "parts", name.text, span, scopes=(Scope("", "", made, (), span),)
            )
        case syntax.Schedule():
            return _schedule(node, groups)
        case syntax.Select():
            return _select(node)


def _select(node: syntax.Select) -> Outline:
    conditions = [Item("", first_line(each), each.span) for each in node.conditions]
    cases = {
        flat(value(case.condition)): Item("", flat(call(case.choice)), case.span)
        for case in node.cases
    }
    cases["else"] = Item("", flat(call(node.otherwise.choice)), node.otherwise.span)
    named = {"parameter": _options(node.parameters), "choice": cases}
    return Outline("select", node.name.text, node.span, named, tuple(conditions))


def _schedule(node: syntax.Schedule, groups: Groups) -> Outline:
    streams: dict[str, Item] = {}
    splits: dict[str, Item] = {}
    captures: dict[str, Item] = {}
    conditions: list[Item] = []
    own: list[syntax.Statement] = []
    scopes: list[Scope] = []
    indices: dict[str, Item] = {}
    # What stands outside of any `each` runs where its timeline stands.
    place = 0
    for statement in node.statements:
        match statement:
            case syntax.Require(condition, span):
                conditions.append(Item("", f"require {flat(value(condition))}", span))
            case syntax.Stream(name, options, span):
                streams[name.text] = Item(name.text, flat(arguments(options)), span)
            case syntax.Split(dimension, into, index, options, span):
                pieces = f"into {flat(value(into))} {flat(arguments(options))}".rstrip()
                splits[dimension.text] = Item(dimension.text, pieces, span)
                indices[dimension.text] = Item(dimension.text, index.text, index.span)
            case syntax.Capture(dimension, sizes, options, span):
                at = f"at {flat(list_of(sizes.items))} {flat(arguments(options))}"
                captures[dimension.text] = Item(dimension.text, at.rstrip(), span)
            case syntax.Each():
                scopes.append(_each(statement, groups))
            case _:
                own.append(statement)
                if isinstance(statement, syntax.Order | syntax.Stagger):
                    place = len(scopes)
    if own:
        scopes.insert(place, _scope("", "", own, node.span, groups))
    named = {
        "parameter": _options(node.parameters),
        "stream": streams,
        "split": splits,
        "split index": indices,
        "capture": captures,
    }
    return Outline(
        "schedule", node.name.text, node.span, named, tuple(conditions), tuple(scopes)
    )


def _each(node: syntax.Each, groups: Groups) -> Scope:
    header = f"in {flat(selector(node.path))}"
    if node.having is not None:
        header += f" having {flat(selector(node.having))}"
    return _scope(node.name.text, header, node.body, node.span, groups)


def _scope(
    name: str,
    header: str,
    body: Iterable[syntax.Statement],
    span: Span,
    groups: Groups,
) -> Scope:
    parts: dict[str, Part] = {}
    timelines: list[Timeline] = []
    others: list[Item] = []
    for statement in body:
        match statement:
            case syntax.Part():
                parts[statement.name.text] = _part(statement)
            case syntax.Use(used) if used.text in groups:
                for part in groups[used.text].parts:
                    parts.setdefault(part.name.text, _part(part, used.text))
            case syntax.Order(windows, place):
                timelines.append(Timeline("order", 0, _windows(windows), place))
            case syntax.Stagger(_, by, windows, place):
                behind = int(by.value) if by is not None else 1
                timelines.append(Timeline("stagger", behind, _windows(windows), place))
            case _:
                others.append(Item("", first_line(statement), statement.span))
    return Scope(name, header, parts, tuple(timelines), span, tuple(others))


def _part(node: syntax.Part, group: str = "") -> Part:
    on = "main"
    match node.on:
        case syntax.Name(stream):
            on = stream
        case syntax.ListOf(items):
            on = flat(list_of(items))
    return Part(
        node.name.text,
        flat(selector(node.selector)),
        on,
        flat(call(node.via)) if node.via is not None else "",
        flat(arguments(node.options)),
        node.span,
        group,
    )


def _windows(windows: Iterable[syntax.Window]) -> tuple[Window, ...]:
    return tuple(
        Window(
            tuple(tuple(map(step_text, run.steps)) for run in window.runs), window.span
        )
        for window in windows
    )


def _options(listed: Iterable[syntax.Argument]) -> dict[str, Item]:
    return {
        each.name.text: Item(each.name.text, flat(expression(each.value)), each.span)
        for each in listed
    }
