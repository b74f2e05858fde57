"""Summaries of profiles in words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynaflow_dsl.measurement.rank_clocks import RankClock
from dynaflow_dsl.measurement.rank_meetings import Meeting, Meetings
from dynaflow_dsl.measurement.step_summary import Pauses, StepSummary, Wait

MILLI, MICRO = 1e-3, 1e-6

# How many waits are named, and the least share of a step that one of them takes.
SHOWN, LEAST = 8, 0.002

# The share of a wait from which on it is told that the awaited step began in it.
LATE = 0.05


def summary_lines(head: str, file: str, summary: StepSummary) -> Iterator[str]:
    """A summary below `head`, with lines of the schedule file `file`."""
    spread = ""
    if summary.runs > 1:
        least, most = _ms(summary.least), _ms(summary.most)
        spread = f", the median of {summary.runs} runs ({least} to {most})"
    yield f"{head}: {_ms(summary.step)} ms a step{spread}"
    width = max(len(use.stream) for use in summary.streams)
    for use in summary.streams:
        share = use.idle / summary.step if summary.step > 0.0 else 0.0
        yield (
            f"  {use.stream:{width}}  busy {_ms(use.busy)} ms, "
            f"idle {_ms(use.idle)} ms ({share:.1%})"
        )
    main = summary.streams[0].stream
    shown = [one for one in summary.waits if one.total >= LEAST * summary.step][:SHOWN]
    for one in shown:
        yield from _wait(one, main, file)
    if rest := summary.waits[len(shown) :]:
        total = sum(one.total for one in rest)
        kinds = "kind" if len(rest) == 1 else "kinds"
        yield f"  {main} waits {_ms(total)} ms in {len(rest)} more {kinds} of waits"
    for pauses, where in (
        (summary.between, "before steps"),
        (summary.inside, "between kernels of a step"),
    ):
        if pauses.count:
            yield f"  {main} pauses {_pauses(pauses, where)}"


def _wait(one: Wait, main: str, file: str) -> Iterator[str]:
    place = f" ({file}:{one.line})" if one.line else ""
    layers = f" of {_layers(one.layers)}" if one.layers else ""
    yield (
        f"  {main} waits {_ms(one.total)} ms for {one.awaited}{layers} on {one.stream}"
        f"{place}"
    )
    before = "at the end of the step"
    if one.before:
        line = f" (line {one.before_line})" if one.before_line else ""
        before = f"before {one.before}{_later(one.later)}{line}"
    times = f"{one.count} times {_ms(one.each)} ms " if one.count > 1 else ""
    yield f"    {times}{before}"
    takes = f"it takes {_ms(one.takes)} ms, {_ms(one.beside)} ms beside work of {main}"
    if one.after > LATE * one.each:
        takes += f", and begins {_ms(one.after)} ms after {main} has begun to wait"
        takes += f", behind {one.behind}" if one.behind else ""
    yield f"    {takes}"


def _later(later: int | None) -> str:
    match later:
        case None | 0:
            return ""
        case 1:
            return " of the next layer"
        case -1:
            return " of the layer before"
    words = "later" if later > 0 else "earlier"
    return f" {abs(later)} layers {words}"


def _pauses(pauses: Pauses, where: str) -> str:
    return (
        f"{_ms(pauses.total)} ms {where}, {pauses.count} times, and waits for no step "
        "then: launches, or the host"
    )


def meeting_lines(found: Meetings, file: str) -> Iterator[str]:
    """A line for each collective of ranks, in the order of a step."""
    if not found.meetings:
        return
    heads = [_head(one) for one in found.meetings]
    width = max(map(len, ["collective", *heads]))
    several = len({one.ranks for one in found.meetings}) > 1
    yield f"{'collective':{width}}  first waits{'moves':>11}  last to begin"
    for head, one in zip(heads, found.meetings, strict=True):
        place = f"  {file}:{one.line}" if one.line else ""
        group = f"  ranks {', '.join(map(str, one.ranks))}" if several else ""
        yield (
            f"{head:{width}}  {_ms(one.first_waits):>8} ms{_ms(one.moves):>8} ms  rank "
            f"{one.last}, {one.times} of {one.count} times{place}{group}"
        )
    if (odd := found.impossible) is not None:
        yield (
            f"by their clocks {odd.step} ended on rank {odd.ended} {_ms(odd.apart)} "
            f"ms before it began on rank {odd.began}: times of these two ranks are at "
            "least that far apart"
        )


def _head(one: Meeting) -> str:
    layers = _layers(one.layers)
    return f"{one.step} of {layers}" if layers else one.step


def clock_lines(clocks: Sequence[RankClock]) -> Iterator[str]:
    """How times of several ranks were brought together."""
    if len(clocks) == 1:
        return
    if len({one.machine for one in clocks}) == 1:
        yield f"{len(clocks)} ranks of one machine, on its clock"
        return
    doubt = max(one.doubt for one in clocks)
    machines = len({one.machine for one in clocks})
    yield (
        f"{len(clocks)} ranks of {machines} machines, on the clock of rank 0; how far "
        f"others are ahead of it is known within {doubt * MICRO:.3f} ms"
    )


def _layers(layers: Sequence[int]) -> str:
    """`layer 3`, or `layers 0 to 31`."""
    if not layers:
        return ""
    spans: list[list[int]] = []
    for layer in layers:
        if spans and spans[-1][1] + 1 == layer:
            spans[-1][1] = layer
        else:
            spans.append([layer, layer])
    word = "layer" if len(layers) == 1 else "layers"
    return f"{word} " + ", ".join(
        str(first) if first == last else f"{first} to {last}" for first, last in spans
    )


def _ms(microseconds: float) -> str:
    return f"{microseconds * MILLI:.3f}"
