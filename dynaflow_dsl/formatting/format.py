"""A source to its one layout, and the check that nothing else changed."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from itertools import chain

from dynaflow_dsl.diagnostics import Diagnostic, Label, Result
from dynaflow_dsl.formatting.comments import Remarks, read_remarks
from dynaflow_dsl.formatting.print import print_rows
from dynaflow_dsl.formatting.statements import rows
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import parse
from dynaflow_dsl.syntax.layout import Layout, scan


def format_source(source: Source) -> Result[str]:
    """The text of a file in the layout of the language.

    A text with errors gives its diagnostics. The result is read again: it has the same
    statements and comments, or this is a defect of the compiler.
    """
    parsed = parse(source)
    if parsed.value is None or not parsed.ok:
        return Result(None, parsed.diagnostics)
    layout = scan(source)
    remarks = read_remarks(source, layout.lines)
    text = print_rows(tuple(rows(parsed.value)), remarks)
    printed = Source(source.name, text)
    again = parse(printed)
    if again.value is None:
        return Result(None, _too_large(source, layout, scan(printed)))
    if meaning(again.value) != meaning(parsed.value):
        raise AssertionError("the layout changed a statement")
    if _comments(read_remarks(printed, scan(printed).lines)) != _comments(remarks):
        raise AssertionError("the layout lost a comment")
    return Result(text, parsed.diagnostics)


def not_formatted(source: Source, formatted: str) -> Diagnostic:
    """DFS021, at the first line that differs."""
    old, new = source.text.split("\n"), formatted.split("\n")
    pairs = enumerate(zip(old, new, strict=False))
    number = next((n for n, (a, b) in pairs if a != b), min(len(old), len(new)) - 1)
    line = source.line(number + 1)
    margin = len(line) - len(line.lstrip()) if line.strip() else 0
    start = source.line_starts[number]
    span = Span(source, start + margin, start + len(line))
    name = source.name
    return Diagnostic(
        "DFS021",
        f"{name} is not laid out as `dfsc fmt` does it",
        Label(span, "the first line that differs"),
        helps=(f"run `dfsc fmt {name}`",),
    )


def meaning(node: object) -> object:
    """A syntax tree without places."""
    if isinstance(node, tuple):
        return tuple(map(meaning, node))
    if is_dataclass(node):
        kept = [f.name for f in fields(node) if f.name not in ("span", "source")]
        return (type(node).__name__, *(meaning(getattr(node, name)) for name in kept))
    return node


def _comments(remarks: Remarks) -> list[str]:
    """All comments of a file, in order."""
    found: list[str] = []
    for around in remarks.statements:
        found += [comment.text for comment in around.above]
        found += [comment.text for comment in chain(*around.within)]
        found += [around.behind] if around.behind else []
    return found + [comment.text for comment in remarks.below]


def _too_large(
    source: Source, layout: Layout, printed: Layout
) -> tuple[Diagnostic, ...]:
    """DFS006 for statements that only their layout makes too large.

    It adds line breaks and a pair of parentheses to what is at the bounds already.
    """
    pairs = zip(layout.lines, printed.lines, strict=True)
    found = tuple(
        Diagnostic(
            "DFS006",
            "this statement is too large to be laid out",
            Label(Span(source, before.start, before.end), "from here"),
            helps=("cut it into several statements",),
        )
        for before, after in pairs
        if after in printed.broken
    )
    if not found:
        raise AssertionError("the layout cannot be read")
    return found
