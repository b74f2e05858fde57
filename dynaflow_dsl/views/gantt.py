"""The timeline as a chart in plain text: streams are rows, windows are columns.

Windows are drawn with the same length, since no durations are known; a window is no
barrier, so on a device a stream may be ahead of what the chart shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dynaflow_dsl.resolve.model import MAIN, Run, Schedule, Section
from dynaflow_dsl.resolve.steps import step_label
from dynaflow_dsl.views.blocks import Kind, Row, blocks
from dynaflow_dsl.views.windows import Counts

# Iterations drawn when their number is unknown: the first and two of the loop.
_UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Column:
    """One window of one iteration: the cell of each stream, and a title if it opens
    an iteration."""

    title: str
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        """Characters that the widest text needs."""
        return max(len(self.title), *map(len, self.cells))


def gantt(schedule: Schedule, iterations: Counts | None = None, width: int = 88) -> str:
    """Draw a few iterations: `mlp[0] 3` is part `mlp`, piece 0, iteration 3.

    `iterations` is the number of modules that each section runs for, None when no graph
    says it. `width` is the longest line; a chart that needs more goes on below. The
    text ends in a newline.
    """
    streams = (MAIN, *(stream.name for stream in schedule.streams))
    columns: list[Column] = []
    for number, section in enumerate(schedule.sections):
        count = iterations[number] if iterations is not None else None
        columns += _columns(schedule, section, streams, count)
    label = max(map(len, streams))
    charts = [
        "\n".join(_chart(chunk, streams, label))
        for chunk in _chunks(columns, width - label - 1)
    ]
    return "\n\n".join(charts) + "\n"


def _columns(
    schedule: Schedule,
    section: Section,
    streams: Sequence[str],
    iterations: int | None,
) -> list[Column]:
    by_kind = {block.kind: block.rows for block in blocks(section)}
    if section.each is None:
        return _iteration(schedule, streams, by_kind["once"], None, "once")
    gap = Column("", ("...",) * len(streams))
    columns: list[Column] = []
    expected = 0
    for number in _drawn(iterations):
        if number > expected:
            columns.append(gap)
        kind: Kind = "first" if number == 0 else "loop"
        title = f"{section.each.name} {number}"
        columns += _iteration(schedule, streams, by_kind.get(kind, ()), number, title)
        expected = number + 1
    if iterations is None:
        columns.append(gap)
    else:
        last = by_kind.get("last", ())
        columns += _iteration(schedule, streams, last, iterations, "after")
    return columns


def _drawn(iterations: int | None) -> tuple[int, ...]:
    if iterations is None:
        return tuple(range(_UNKNOWN))
    if iterations <= _UNKNOWN:
        return tuple(range(iterations))
    return (0, 1, iterations - 1)


def _iteration(
    schedule: Schedule,
    streams: Sequence[str],
    rows: Sequence[Row],
    number: int | None,
    title: str,
) -> list[Column]:
    columns = []
    for position, row in enumerate(rows):
        by_stream = {run.stream: _cell(schedule, run, number) for run in row}
        cells = tuple(by_stream.get(stream, "") for stream in streams)
        columns.append(Column(title if position == 0 else "", cells))
    return columns


def _cell(schedule: Schedule, run: Run, number: int | None) -> str:
    texts = []
    for step in run.steps:
        plain = step_label(replace(step, previous=False), schedule.piece_names)
        if number is not None:
            plain += f" {number - step.previous}"
        texts.append(plain)
    return ", ".join(texts)


def _chunks(columns: Sequence[Column], width: int) -> list[list[Column]]:
    chunks: list[list[Column]] = [[]]
    used = 0
    for column in columns:
        needed = column.width + 1
        if chunks[-1] and used + needed > width:
            chunks.append([])
            used = 0
        chunks[-1].append(column)
        used += needed
    return chunks


def _chart(columns: Sequence[Column], streams: Sequence[str], label: int) -> list[str]:
    titles = " ".join(column.title.ljust(column.width) for column in columns)
    lines = [f"{'':{label}} {titles}".rstrip()]
    for row, stream in enumerate(streams):
        cells = "|".join(column.cells[row].ljust(column.width) for column in columns)
        lines.append(f"{stream:{label}}|{cells}|")
    return lines
