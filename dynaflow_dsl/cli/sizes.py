"""The sizes of the split dimension that are worth a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from typing import Any

import click

from dynaflow_dsl.bind.capture import STREAM_DEVICES
from dynaflow_dsl.cli.choices import MOST_ROWS
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.resolve.model import Schedule

USUAL = (1, 2, 3, 8)

# The size that is measured where nothing is captured.
USUAL_SIZE = 8


def split_dimension(graph: Graph, schedule: Schedule) -> str:
    """The dimension that is split, else the first one of the entry."""
    if schedule.split is not None:
        return schedule.split.dimension
    return next(iter(name for name, _, _ in graph.dimensions), "")


def allowed_sizes(
    wanted: Sequence[int], graph: Graph, schedule: Schedule
) -> tuple[int, ...]:
    """The usual sizes that the dimension can have, or the wanted ones if there are any.

    An entry without dimensions has one size, which stands as 1. Raises UsageError when
    one of the wanted ones is out of bounds.
    """
    name = split_dimension(graph, schedule)
    if not name:
        if wanted:
            raise click.UsageError(
                f"--batch: no argument of entry {graph.entry} has a dimension"
            )
        return (1,)
    bounds = {known: (low, high) for known, low, high in graph.dimensions}
    low, high = bounds.get(name, (1, None))
    sizes = tuple(wanted) or usual_sizes(schedule)
    allowed = tuple(size for size in sizes if low <= size <= (high or size))
    if wanted and allowed != sizes:
        upper = f"to {high}" if high is not None else "upwards"
        raise click.UsageError(f"--batch: {name} goes from {low} {upper}")
    return allowed


def with_captured(
    sizes: tuple[int, ...], graph: Graph, schedule: Schedule, device: str
) -> tuple[int, ...]:
    """Also the captured sizes, on a device that captures."""
    if device.partition(":")[0] not in STREAM_DEVICES:
        return sizes
    name = split_dimension(graph, schedule)
    lines = [line for line in schedule.captures if line.dimension == name]
    captured = [size for line in lines for size in line.sizes]
    return tuple(sorted({*sizes, *captured}))


def sizes_to_measure(
    graph: Graph, schedule: Schedule, size: int | None
) -> dict[str, int]:
    """A size for every dynamic dimension of an entry, within its bounds.

    `size` goes before the largest captured one, and that before the usual one. Phases
    share the rows, unless their largest captured sizes say otherwise.
    """
    captured = {line.dimension: line.sizes[-1] for line in schedule.captures}
    found: dict[str, int] = {}
    for name, low, high in graph.dimensions:
        if size is not None and not low <= size <= (high or size):
            upper = f"to {high}" if high is not None else "upwards"
            raise click.UsageError(f"--size: {name} goes from {low} {upper}")
        wanted = size if size is not None else captured.get(name, USUAL_SIZE)
        found[name] = max(low, min(wanted, high if high is not None else wanted))
    for dimension, phases in graph.phases:
        if size is None and set(phases) <= captured.keys():
            found |= {name: captured[name] for name in phases}
            found[dimension] = sum(captured[name] for name in phases)
        else:
            cuts = [found[dimension] * k // len(phases) for k in range(len(phases) + 1)]
            found |= {p: cuts[k + 1] - cuts[k] for k, p in enumerate(phases)}
    return found


def phases_of(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int] | None:
    """The rows of each phase among sizes; None for an entry without phases."""
    return {n: sizes[n] for _, names in graph.phases for n in names} or None


def usual_sizes(schedule: Schedule) -> tuple[int, ...]:
    """The usual sizes, and the smallest ones with a row in every piece.

    Smaller steps run `sequential`; alone, they would say nothing of the schedule.
    """
    if schedule.split is not None and schedule.split.phases:
        count = len(schedule.split.phases)
        return tuple(sorted({*USUAL, count, count + 1}))
    pieces = pieces_of(schedule)
    filled = (size for size in range(1, MOST_ROWS) if all_filled(pieces(size)))
    return tuple(sorted({*USUAL, *islice(filled, 2)}))


def step_sizes(totals: Sequence[int], schedule: Schedule) -> list[int | dict[str, int]]:
    """What to run for each number of rows: the rows of each phase, in several ways.

    All rows in one phase, all but one row for each other, and nearly equal shares.
    """
    split = schedule.split
    if split is None or not split.phases:
        return list(totals)
    found: dict[tuple[int, ...], dict[str, int]] = {}
    count = len(split.pieces)
    for total in totals:
        shares = [total * k // count for k in range(count + 1)]
        ways = [[shares[k + 1] - shares[k] for k in range(count)]]
        for k in range(count):
            ways.append([total if j == k else 0 for j in range(count)])
            if total >= count:
                most = total - count + 1
                ways.append([most if j == k else 1 for j in range(count)])
        for way in ways:
            rows = dict(zip(split.pieces, way, strict=True))
            found.setdefault((total, *way), rows)
    return [found[key] for key in sorted(found)]


def captured_phases(schedule: Schedule, device: str) -> list[dict[str, int]]:
    """The captured sizes of phases, on a device that captures."""
    split = schedule.split
    if split is None or device.partition(":")[0] not in STREAM_DEVICES:
        return []
    lines = {line.dimension: line.sizes for line in schedule.captures}
    if not split.phases or not set(split.pieces) <= lines.keys():
        return []
    ways = product(*(lines[name] for name in split.pieces))
    return [dict(zip(split.pieces, way, strict=True)) for way in ways if any(way)]


def all_filled(pieces: Sequence[slice]) -> bool:
    """Whether every piece has a row; else the step runs `sequential`."""
    return all(piece.start < piece.stop for piece in pieces)


def pieces_of(schedule: Schedule) -> Callable[[Any], Sequence[slice]]:
    """The rows of each piece by the size of the dimension, or by the rows of each phase
    of a split by phase; none without a split."""
    from dynaflow_dsl.verification.verify import phase_pieces, proportional_pieces

    if schedule.split is None:
        return lambda size: ()
    if schedule.split.phases:
        return phase_pieces(schedule.split.pieces)
    return proportional_pieces(schedule.split.weights, schedule.split.align)
