"""A `select` as text: its lines, and what steps of each entry choose."""

from __future__ import annotations

from collections.abc import Sequence

from dynaflow_dsl.resolve import Selection
from dynaflow_dsl.resolve.model import Select
from dynaflow_dsl.resolve.values import written


def select_text(select: Select, selection: Selection | None = None) -> str:
    """The lines in order; with a model, the smallest step that reaches each, by entry.

    The text ends in a newline.
    """
    values = [f"{each.name} = {written(each.value)}" for each in select.parameters]
    name = select.name + (f"({', '.join(values)})" if values else "")
    lines = [f"select {name}: the first line that holds"]
    conditions = [_condition(line.span.text) for line in select.lines]
    width = max(map(len, conditions))
    for condition, line in zip(conditions, select.lines, strict=True):
        lines.append(f"    {condition.ljust(width)}  {line.choice}")
    for choices in selection.entries if selection is not None else ():
        lines += ["", f"entry {choices.entry}:"]
        reached = {chosen.line: chosen.example for chosen in choices.lines}
        for number, condition in enumerate(conditions):
            lines.append(f"    {condition.ljust(width)}  {_from(reached, number)}")
    return "\n".join(lines) + "\n"


def select_data(select: Select, selection: Selection | None) -> dict[str, object]:
    """The same as plain data, for `--output-format json`."""
    entries = selection.entries if selection is not None else ()
    return {
        "select": select.name,
        "lines": [
            {"text": " ".join(line.span.text.split()), "schedule": line.schedule}
            for line in select.lines
        ],
        "entries": {
            each.entry: [
                {"line": chosen.line, "example": dict(chosen.example)}
                for chosen in each.lines
            ]
            for each in entries
        },
    }


def _condition(line: str) -> str:
    return " ".join(line.split()).rpartition(":")[0]


def _from(reached: dict[int, tuple[tuple[str, int], ...]], number: int) -> str:
    if number not in reached:
        return "never"
    sizes: Sequence[tuple[str, int]] = reached[number]
    if not sizes:
        return "every step" if number == 0 else "some steps"
    return f"such as {', '.join(f'{name} = {size}' for name, size in sizes)}"
