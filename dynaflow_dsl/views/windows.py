"""The timeline as an aligned table, one line per window."""

from __future__ import annotations

from itertools import zip_longest

from dynaflow_dsl.resolve.model import Schedule
from dynaflow_dsl.resolve.values import written
from dynaflow_dsl.views.blocks import Block, Row, blocks, run_text


def windows(schedule: Schedule, iterations: int | None = None) -> str:
    """Every window in the words of the schedule file, block by block.

    `iterations` is the number of modules that the `each` matches, None when no graph
    says it. The text ends in a newline.
    """
    shown = blocks(schedule)
    if iterations == 1:
        shown = tuple(block for block in shown if block.kind != "loop")
    paragraphs = [heading(schedule)]
    for block in shown:
        lines = [f"{_title(schedule, block, iterations)}:"]
        lines += [f"    {line}" for line in _aligned(schedule, block.rows)]
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs) + "\n"


def heading(schedule: Schedule) -> str:
    """Name, parameters, streams, split and scope of a schedule, in one or two lines."""
    each = schedule.sections[0].each
    streams = ", ".join(("main", *(stream.name for stream in schedule.streams)))
    facts = [f"streams {streams}"]
    if schedule.split is not None:
        split = schedule.split
        facts.append(f"{split.dimension} in {schedule.pieces} pieces as {split.index}")
    scope = f"each {each.name} in {each.path.span.text}"
    values = [f"{each.name} = {written(each.value)}" for each in schedule.parameters]
    name = schedule.name + (f"({', '.join(values)})" if values else "")
    return f"{name}: {'; '.join(facts)}\n{scope}"


def _title(schedule: Schedule, block: Block, iterations: int | None) -> str:
    name = schedule.sections[0].each.name
    match block.kind:
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
