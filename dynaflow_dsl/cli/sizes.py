"""The sizes of the split dimension that are worth a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

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

    Raises UsageError when one of the wanted ones is out of bounds.
    """
    name = split_dimension(graph, schedule)
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

    `size` goes before the largest captured one, and that before the usual one.
    """
    captured = {line.dimension: line.sizes[-1] for line in schedule.captures}
    found = {}
    for name, low, high in graph.dimensions:
        wanted = size if size is not None else captured.get(name, USUAL_SIZE)
        found[name] = max(low, min(wanted, high if high is not None else wanted))
    return found


def usual_sizes(schedule: Schedule) -> tuple[int, ...]:
    """The usual sizes, and the smallest ones with a row in every piece.

    Smaller steps run `sequential`; alone, they would say nothing of the schedule.
    """
    pieces = pieces_of(schedule)
    filled = (size for size in range(1, MOST_ROWS) if all_filled(pieces(size)))
    return tuple(sorted({*USUAL, *islice(filled, 2)}))


def all_filled(pieces: Sequence[slice]) -> bool:
    """Whether every piece has a row; else the step runs `sequential`."""
    return all(piece.start < piece.stop for piece in pieces)


def pieces_of(schedule: Schedule) -> Callable[[int], Sequence[slice]]:
    """The rows of each piece by the size of the dimension; none without a split."""
    from dynaflow_dsl.verification.verify import proportional_pieces

    if schedule.split is None:
        return lambda size: ()
    return proportional_pieces(schedule.split.weights, schedule.split.align)
