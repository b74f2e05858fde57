"""Syntax tree to rows: one for each statement, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dynaflow_dsl.formatting.expressions import (
    arguments,
    call,
    list_of,
    selector,
    value,
)
from dynaflow_dsl.formatting.model import Brackets, Gap, Row, Sequence, Word, flat
from dynaflow_dsl.syntax import model as syntax

_COLON = Word(":")


def rows(tree: syntax.SyntaxTree) -> Iterator[Row]:
    """All statements of a file, the edition first."""
    yield Row(0, _spaced("dfs", "1"))
    if tree.model is not None:
        target = _string(tree.model.target)
        yield Row(0, (*_spaced("model", target), *_options(tree.model.options)))
    for declaration in tree.declarations:
        yield from _declaration(declaration)


def first_line(node: syntax.Statement | syntax.Equal) -> str:
    """The first line of a statement, however long, without a colon at its end."""
    match node:
        case syntax.Equal(names):
            return f"equal {flat(_names(names))}"
    return flat(next(_statement(node, 0)).content).removesuffix(":")


def step_text(step: syntax.Step) -> str:
    """A step of a window."""
    return flat(_step(step))


def _declaration(node: syntax.Declaration) -> Iterator[Row]:
    match node:
        case syntax.Import(file, names):
            head = _spaced("from", _string(file), "import")
            yield Row(0, (*head, Gap.SPACE, *_names(names)))
        case syntax.Kernel(name, target, options):
            head = _spaced("kernel", name.text, "=", _string(target))
            yield Row(0, (*head, *_options(options)))
        case syntax.PartGroup(name, parts):
            yield Row(0, (*_spaced("parts", name.text), _COLON))
            for part in parts:
                yield _part(part, 1)
        case syntax.Schedule(name, parameters, statements, doc):
            head = _spaced("schedule", name.text)
            yield Row(0, (*head, *arguments(parameters), _COLON), doc=doc)
            for statement in statements:
                yield from _statement(statement, 1)
        case syntax.Select():
            yield from _select(node)


def _select(node: syntax.Select) -> Iterator[Row]:
    head = _spaced("select", node.name.text)
    yield Row(0, (*head, *arguments(node.parameters), _COLON), doc=node.doc)
    for condition in node.conditions:
        match condition:
            case syntax.Require():
                yield from _statement(condition, 1)
            case syntax.Equal(names):
                yield Row(1, (Word("equal"), Gap.SPACE, *_names(names)))
    for case in node.cases:
        test = (Word("when"), Gap.SPACE, *value(case.condition), _COLON)
        yield _choice(test, case.choice)
    yield _choice((Word("else"), _COLON), node.otherwise.choice)


def _choice(test: Sequence, choice: syntax.Call) -> Row:
    return _table(1, ("choice",), [test, call(choice)])


def _statement(node: syntax.Statement, level: int) -> Iterator[Row]:
    match node:
        case syntax.Require(condition):
            yield Row(level, (Word("require"), Gap.SPACE, *value(condition)))
        case syntax.Stream(name, options):
            cells = [_spaced("stream", name.text), arguments(options)]
            yield _table(level, ("stream", bool(options)), cells)
        case syntax.Split(dimension, into, index, options):
            head = _spaced("split", dimension.text, "into")
            tail = _spaced("as", index.text)
            content = (*head, Gap.SPACE, *value(into), Gap.SPACE, *tail)
            yield Row(level, (*content, *_options(options)))
        case syntax.Capture(dimension, sizes, options):
            head = _spaced("capture", dimension.text, "at")
            content = (*head, Gap.SPACE, *list_of(sizes.items))
            yield Row(level, (*content, *_options(options)))
        case syntax.Each(name, path, having, body):
            head = (*_spaced("each", name.text, "in"), Gap.SPACE, *selector(path))
            if having is not None:
                head = (*head, Gap.SPACE, Word("having"), Gap.SPACE, *selector(having))
            yield Row(level, (*head, _COLON))
            for placement in body:
                yield from _statement(placement, level + 1)
        case syntax.Part():
            yield _part(node, level)
        case syntax.Use(name):
            yield Row(level, _spaced("use", name.text))
        case syntax.Order(windows):
            yield Row(level, (Word("order"), _COLON))
            yield from _windows(windows, level + 1)
        case syntax.Stagger(index, by, windows):
            head = _spaced("stagger", index.text)
            if by is not None:
                head = (*head, Gap.SPACE, *_spaced("by", str(by.value)))
            yield Row(level, (*head, _COLON))
            yield from _windows(windows, level + 1)


def _part(node: syntax.Part, level: int) -> Row:
    on: Sequence = ()
    match node.on:
        case syntax.Name(stream):
            on = _spaced("on", stream)
        case syntax.ListOf(streams):
            on = (Word("on"), Gap.SPACE, *list_of(streams))
    via: Sequence = ()
    if node.via is not None:
        via = (Word("via"), Gap.SPACE, *call(node.via))
    chosen = Brackets("(", (selector(node.selector),), ")", optional=True)
    cells = [
        _spaced("part", node.name.text),
        arguments(node.options),
        on,
        via,
        (Word("="), Gap.SPACE, chosen),
    ]
    return _table(level, ("part", *map(bool, cells)), cells)


def _windows(windows: Iterable[syntax.Window], level: int) -> Iterator[Row]:
    for window in windows:
        runs = [_run(run) for run in window.runs]
        content = runs[0]
        for run in runs[1:]:
            content = (*content, Gap.BREAK, Word("|"), Gap.SPACE, *run)
        yield Row(
            level,
            (Brackets("(", (content,), ")", optional=True),),
            ("window",),
            tuple(map(flat, runs)),
            " | ",
        )


def _run(run: syntax.Run) -> Sequence:
    content = _step(run.steps[0])
    for step in run.steps[1:]:
        content = (*content, Word(","), Gap.SPACE, *_step(step))
    return content


def _step(step: syntax.Step) -> Sequence:
    content = _reference(step.reference)
    if step.after is None:
        return content
    return (*content, Gap.SPACE, Word("after"), Gap.SPACE, *_reference(step.after))


def _reference(node: syntax.Reference) -> Sequence:
    name = Word(f"prev.{node.name.text}" if node.previous else node.name.text)
    match node.index:
        case None:
            return (name,)
        case syntax.Number(number):
            index = str(number)
        case syntax.Name(text):
            index = text
        case syntax.AllPieces():
            index = "*"
    return (name, Word("["), Word(index), Word("]"))


def _table(level: int, shape: tuple[object, ...], cells: Iterable[Sequence]) -> Row:
    """A row whose cells have spaces between them."""
    filled = [cell for cell in cells if cell]
    content = filled[0]
    for cell in filled[1:]:
        content = (*content, Gap.SPACE, *cell)
    return Row(level, content, shape, tuple(map(flat, filled)))


def _options(listed: tuple[syntax.Argument, ...]) -> Sequence:
    return (Gap.SPACE, *arguments(listed)) if listed else ()


def _names(names: tuple[syntax.Name, ...]) -> Sequence:
    content: Sequence = (Word(names[0].text),)
    for name in names[1:]:
        content = (*content, Word(","), Gap.SPACE, Word(name.text))
    return content


def _spaced(first: str, *others: str) -> Sequence:
    content: Sequence = (Word(first),)
    for word in others:
        content = (*content, Gap.SPACE, Word(word))
    return content


def _string(node: syntax.String) -> str:
    return f'"{node.value}"'
