"""What a `select` says of given sizes, and which sizes are worth a look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.resolve import Selection
from dynaflow_dsl.resolve.choices import EntryChoices
from dynaflow_dsl.resolve.model import Value
from dynaflow_dsl.resolve.requirements import value_of
from dynaflow_dsl.resolve.select import PHASE, SEQUENTIAL
from dynaflow_dsl.resolve.values import evaluate_condition

# More rows than this are not run. A split has at most 64 pieces, and borders between
# lines are looked for up to here.
MOST_ROWS = 4096


def line_of(selection: Selection, graph: Graph, sizes: Mapping[str, int]) -> int:
    """The first line that holds, by evaluating the conditions as they are written."""
    values: dict[str, Value | None] = {
        fact.name: value_of(fact.value) for fact in selection.facts
    }
    values |= dict(graph.fixed)
    values |= dict(sizes.items())
    values |= {p.name: p.value for p in selection.select.parameters}
    values[PHASE] = graph.entry
    for number, line in enumerate(selection.select.lines):
        if line.condition is None or evaluate_condition(line.condition, [], values):
            return number
    raise AssertionError("a select ends in 'else'")


def expected_choice(
    selection: Selection,
    graph: Graph,
    fills: Callable[[str, Mapping[str, int]], bool],
) -> Callable[[Mapping[str, int]], tuple[str, str]]:
    """The schedule that steps run, and the line that says so.

    `fills(schedule, sizes)` tells whether every piece of its split has a row.
    """

    def expected(sizes: Mapping[str, int]) -> tuple[str, str]:
        line = selection.select.lines[line_of(selection, graph, sizes)]
        name = line.schedule or SEQUENTIAL
        if line.schedule is not None and not fills(line.schedule, sizes):
            name = SEQUENTIAL
        return name, f"'{' '.join(line.span.text.split())}'"

    return expected


def sizes_to_try(
    selection: Selection, choices: EntryChoices, graph: Graph
) -> list[dict[str, int]]:
    """Sizes that reach every line, and both sides of the borders along each size."""
    lowest = {name: low for name, low, _ in graph.dimensions}
    found = [
        {**lowest, **dict(chosen.example)} for chosen in choices.lines if chosen.example
    ]
    for start in [lowest, *found]:
        for name, low, high in graph.dimensions:
            found += _borders(selection, graph, start, name, low, high)
    distinct = {tuple(sorted(sizes.items())): sizes for sizes in found}
    return [distinct[key] for key in sorted(distinct)]


def _borders(
    selection: Selection,
    graph: Graph,
    start: Mapping[str, int],
    name: str,
    low: int,
    high: int | None,
) -> Iterator[dict[str, int]]:
    stop = min(high or MOST_ROWS, low + MOST_ROWS)
    along = [{**start, name: size} for size in range(low, stop + 1)]
    lines = [line_of(selection, graph, sizes) for sizes in along]
    seen: set[tuple[int, int]] = set()
    for (below, above), pair in zip(pairwise(along), pairwise(lines), strict=True):
        # A condition on remainders has thousands of equal borders.
        if pair[0] != pair[1] and pair not in seen:
            seen.add(pair)
            yield below
            yield above
