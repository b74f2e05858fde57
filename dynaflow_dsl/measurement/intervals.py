"""Intervals of time: unions, lengths, and what two of them share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

# Beginning and end, in microseconds.
Interval: TypeAlias = tuple[float, float]


def union(intervals: Iterable[Interval]) -> Iterator[Interval]:
    """The union of intervals, in order and without overlap."""
    current: Interval | None = None
    for begin, end in sorted(intervals):
        if current is not None and begin <= current[1]:
            current = current[0], max(current[1], end)
            continue
        if current is not None:
            yield current
        current = begin, end
    if current is not None:
        yield current


def length(intervals: Iterable[Interval]) -> float:
    """The whole length of intervals that do not overlap."""
    return sum(end - begin for begin, end in intervals)


def common(one: Iterable[Interval], other: Iterable[Interval]) -> float:
    """For how long both of two unions are; each in order and without overlap."""
    found, rest, first = 0.0, list(other), 0
    for begin, end in one:
        # What ends before this one begins meets none of those that follow.
        while first < len(rest) and rest[first][1] <= begin:
            first += 1
        for start, stop in rest[first:]:
            if start >= end:
                break
            found += min(end, stop) - max(begin, start)
    return found


def without(whole: Interval, others: Iterable[Interval]) -> Iterator[Interval]:
    """What is left of an interval; `others` are in order and without overlap."""
    begin, end = whole
    for start, stop in others:
        if stop <= begin:
            continue
        if start >= end:
            break
        if start > begin:
            yield begin, start
        begin = stop
    if begin < end:
        yield begin, end
