"""Rows to text: statements with their comments, blank lines and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dynaflow_dsl.formatting.breaking import break_lines
from dynaflow_dsl.formatting.comments import CommentLine, Remarks, Surroundings
from dynaflow_dsl.formatting.model import INDENT, WIDTH, Row, attach, words
from dynaflow_dsl.formatting.statements import rows
from dynaflow_dsl.syntax import SyntaxTree


@dataclass(frozen=True, slots=True)
class Printed:
    """A comment (without a row) or a statement, before blank lines are put between.

    `behind` is the comment at its end.
    """

    text: str
    level: int
    blank_before: bool
    row: Row | None = None
    behind: str | None = None


def print_tree(tree: SyntaxTree) -> str:
    """The text of a tree, with no comments but those above schedules."""
    statements = tuple(rows(tree))
    around = tuple(_bare(row) for row in statements)
    return print_rows(statements, Remarks(around, ()))


def print_rows(statements: Sequence[Row], remarks: Remarks) -> str:
    """The text of statements within what surrounds them."""
    text: list[str] = []
    above: Printed | None = None
    for line in _aligned(list(_printed(statements, remarks))):
        # A block follows its header at once, and a file begins with its first line.
        header = above is None or (above.row is not None and line.level > above.level)
        if line.blank_before and not header:
            text.append("")
        text.append(f"{line.text}  {line.behind}" if line.behind else line.text)
        above = line
    return "\n".join(text) + "\n"


def _bare(row: Row) -> Surroundings:
    doc = [f"# {line}".rstrip() for line in row.doc.split("\n")] if row.doc else []
    return Surroundings(
        indent=row.level * INDENT,
        above=tuple(
            CommentLine(line, 0, blank_before=not place)
            for place, line in enumerate(doc)
        ),
        blank_before=not (row.level or doc),
        within=((), *(() for _ in words(row.content))),
        behind=None,
    )


def _printed(statements: Sequence[Row], remarks: Remarks) -> Iterator[Printed]:
    """Comments and statements in order, each on its level."""
    indents: dict[int, int] = {}
    last = 0
    left_over: list[Printed] = []
    for row, around in zip(statements, remarks.statements, strict=True):
        blank = around.blank_before
        comments = [*left_over, *_placed(around.above, row.level, last, indents)]
        if row.doc is not None:
            comments, blank = _set_apart(comments, blank, _doc_length(around))
        yield from comments
        first, *others = around.within
        broken = break_lines(attach(row.content, others), row.level, first)
        behind = [comment.text for comment in broken.left_over]
        behind += [around.behind] if around.behind else []
        yield Printed(
            "\n".join(broken.lines), row.level, blank, row, next(iter(behind), None)
        )
        left_over = [_comment(text, row.level) for text in behind[1:]]
        indents[row.level] = around.indent
        last = row.level
    yield from left_over
    yield from _placed(remarks.below, 0, last, indents)


def _placed(
    comments: Iterable[CommentLine],
    lowest: int,
    highest: int,
    indents: Mapping[int, int],
) -> Iterator[Printed]:
    """Comments between two statements, on the levels that their columns tell.

    Where blocks end between the two, a comment belongs to the deepest block that does
    not begin right of it.
    """
    for comment in comments:
        inner = range(highest, lowest, -1)
        fitting = (level for level in inner if indents[level] <= comment.column)
        level = next(fitting, lowest)
        yield _comment(comment.text, level, blank_before=comment.blank_before)


def _comment(text: str, level: int, *, blank_before: bool = False) -> Printed:
    return Printed(" " * level * INDENT + text, level, blank_before)


def _doc_length(around: Surroundings) -> int:
    """How many of the comments above a schedule are its description."""
    length = 0
    adjacent = not around.blank_before
    for comment in reversed(around.above):
        if not adjacent or comment.column:
            break
        length += 1
        adjacent = not comment.blank_before
    return length


def _set_apart(
    comments: list[Printed], blank: bool, length: int
) -> tuple[list[Printed], bool]:
    """Keep other comments from becoming a part of a schedule's description."""
    start = len(comments) - length
    if start == 0 or comments[start - 1].level:
        return comments, blank
    if not length:
        return comments, True
    first = replace(comments[start], blank_before=True)
    return [*comments[:start], first, *comments[start + 1 :]], blank


def _aligned(lines: list[Printed]) -> Iterator[Printed]:
    """The same lines, with neighbouring statements of one shape set as tables."""
    table: list[Printed] = []
    for line in lines:
        if table and not (_aligns(line) and _continues(table[-1], line)):
            yield from _table(table)
            table = []
        if _aligns(line):
            table.append(line)
        else:
            yield line
    yield from _table(table)


def _aligns(line: Printed) -> bool:
    return line.row is not None and bool(line.row.shape) and "\n" not in line.text


def _continues(above: Printed, line: Printed) -> bool:
    same = _shape(above) == _shape(line) and above.level == line.level
    return same and not line.blank_before


def _shape(line: Printed) -> tuple[object, ...]:
    return line.row.shape if line.row else ()


def _table(lines: list[Printed]) -> list[Printed]:
    """Lines with their columns aligned; as they were if one would become too long."""
    cells = [line.row.cells for line in lines if line.row]
    widths: dict[int, int] = {}
    for row in cells:
        for column, cell in enumerate(row[:-1]):
            widths[column] = max(widths.get(column, 0), len(cell))
    aligned = []
    for line, row in zip(lines, cells, strict=True):
        padded = [cell.ljust(widths[place]) for place, cell in enumerate(row[:-1])]
        separator = line.row.separator if line.row else ""
        text = " " * line.level * INDENT + separator.join([*padded, row[-1]])
        aligned.append(replace(line, text=text))
    if any(len(line.text) > WIDTH for line in aligned):
        return lines
    return aligned
