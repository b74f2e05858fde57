"""The timeline as an aligned table, one line per window."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeAlias

from dynaflow_dsl.resolve.model import Schedule, Section
from dynaflow_dsl.resolve.values import written
from dynaflow_dsl.views.blocks import Block, Row, blocks, run_text, scope_text

# The number of iterations of each section.
Counts: TypeAlias = Sequence[int]


def windows(schedule: Schedule, iterations: Counts | None = None) -> str:
    """Every window in the words of the schedule file, block by block.

    `iterations` is the number of modules that each section runs for, None when no graph
    says it. The text ends in a newline.
    """
    paragraphs = []
    for number, section in enumerate(schedule.sections):
        count = iterations[number] if iterations is not None else None
        if number > 0:
            paragraphs.append(scope_text(section))
        for block in blocks(section):
            if block.kind == "loop" and count == 1:
                continue
            lines = [f"{_title(section, block, count)}:"]
            lines += [f"    {line}" for line in _aligned(schedule, block.rows)]
            paragraphs.append("\n".join(lines))
    return "\n\n".join([heading(schedule), *paragraphs]) + "\n"


def heading(schedule: Schedule) -> str:
    """Name, parameters, streams and split of a schedule, and its first scope."""
    streams = ", ".join(("main", *(stream.name for stream in schedule.streams)))
    facts = [f"streams {streams}"]
    if schedule.split is not None:
        split = schedule.split
        named = f" ({', '.join(split.pieces)})" if split.phases else ""
        pieces = f"{schedule.pieces} pieces{named}"
        facts.append(f"{split.dimension} in {pieces} as {split.index}")
    values = [f"{each.name} = {written(each.value)}" for each in schedule.parameters]
    name = schedule.name + (f"({', '.join(values)})" if values else "")
    return f"{name}: {'; '.join(facts)}\n{scope_text(schedule.sections[0])}"


def _title(section: Section, block: Block, iterations: int | None) -> str:
    name = section.each.name if section.each is not None else ""
    match block.kind:
        case "once":
            return "once"
        case "first":
            return f"{name} 0"
        case "loop":
            if iterations is None:
                return f"{name} 1 and every later one"
            return f"{name} 1 to {iterations - 1}" if iterations > 2 else f"{name} 1"
        case "last":
            return f"after the last {name}"


def _aligned(schedule: Schedule, rows: tuple[Row, ...]) -> list[str]:
    cells = [[run_text(schedule, run) for run in row] for row in rows]
    widths = [max(map(len, column)) for column in zip_longest(*cells, fillvalue="")]
    return [
        " | ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=False)
        ).rstrip()
        for row in cells
    ]
