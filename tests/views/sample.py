"""Schedules and bindings made by hand, so that views are tested alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from dynaflow_dsl.resolve.model import (
    Each,
    Part,
    PathSelector,
    RestSelector,
    Run,
    Schedule,
    Section,
    Split,
    Step,
    Stream,
    Window,
)
from dynaflow_dsl.source import Source, Span

PATH = Span(Source("sample.dfs", ".model.layers.*"), 0, 15)


def schedule(
    timeline: str, parts: Mapping[str, str], pieces: int = 2, name: str = "sample"
) -> Schedule:
    """A schedule of one `each`: `parts` gives the stream of each part, and `timeline`
    has one window per line."""
    streams = dict.fromkeys(s for s in parts.values() if s != "main")
    weights = (Fraction(1),) * pieces
    return Schedule(
        name=name,
        doc="",
        streams=tuple(Stream(stream, PATH) for stream in streams),
        split=Split("batch", weights, "half", 1, PATH) if pieces > 1 else None,
        sections=(
            Section(
                Each(
                    "layer", PathSelector("scope", ("model", "layers", "*"), PATH), PATH
                ),
                parts=tuple(
                    Part(part, (stream,) * pieces, RestSelector(PATH), PATH, PATH)
                    for part, stream in parts.items()
                ),
                windows=tuple(_window(line, parts) for line in timeline.splitlines()),
                timeline="order",
                timeline_span=PATH,
                span=PATH,
            ),
        ),
        name_span=PATH,
        span=PATH,
    )


def halves() -> Schedule:
    """Two pieces, `mlp` one stage behind `attn` on another stream."""
    parts = {"attn": "side", "mlp": "main"}
    return schedule("attn[0] | prev.mlp[1]\nmlp[0] | attn[1]", parts)


def unsplit() -> Schedule:
    """Two parts in sequence on one stream, nothing from the iteration before."""
    parts = dict.fromkeys(("attn", "router", "mlp"), "main")
    return schedule("attn, router\nmlp", parts, 1)


def _window(line: str, parts: Mapping[str, str]) -> Window:
    runs = []
    for run in line.split("|"):
        steps = tuple(_step(text.strip()) for text in run.split(","))
        runs.append(Run(parts[steps[0].part], steps))
    return Window(tuple(runs), line.strip(), PATH)


def _step(text: str) -> Step:
    match = re.fullmatch(r"(prev\.)?(\w+)(?:\[(\d)\])?", text)
    assert match is not None, text
    return Step(match[2], int(match[3] or 0), match[1] is not None, PATH)
