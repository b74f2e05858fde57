"""Every part stands in the timeline of its section, once for each microbatch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.timeline import Timeline
from dynaflow_dsl.source import Span


def check_complete(
    parts: Sequence[model.Part],
    windows: Sequence[model.Window],
    timeline: Timeline,
    header: Span,
) -> Iterator[Diagnostic]:
    """Each part has to appear exactly once for each microbatch."""
    seen: dict[tuple[str, int], model.Step] = {}
    reported: set[Span] = set()
    for window in windows:
        for step in (step for run in window.runs for step in run.steps):
            joined = step.piece is None
            for piece in range(timeline.pieces) if joined else (step.piece or 0,):
                first = seen.setdefault((step.part, piece), step)
                if first is not step and step.span not in reported:
                    # A step for all pieces is one place, however many they are.
                    reported.add(step.span)
                    yield _twice(first, step, timeline)
    for part in parts:
        pieces = range(timeline.pieces)
        missing = [piece for piece in pieces if (part.name, piece) not in seen]
        if missing:
            yield _missing(part, missing, timeline, header)


def _twice(first: model.Step, step: model.Step, timeline: Timeline) -> Diagnostic:
    # Named as the one of the two that has an index, if one of them runs for all pieces.
    piece = first.piece if step.piece is None else step.piece
    plain = model.Step(step.part, piece, previous=False, span=step.span)
    notes = []
    if first.previous != step.previous:
        notes.append("a step of the iteration before counts as that part's step")
    whole = next((s for s in (step, first) if "[" not in s.span.text), None)
    if whole is not None and timeline.pieces > 1:
        text = f"'{whole.span.text}' without an index stands for all pieces"
        names = [f"[{name}]" for name in timeline.piece_names]
        by_phase = timeline.split is not None and timeline.split.phases
        listed = ", ".join(names) if by_phase else f"{names[0]} to {names[-1]}"
        notes.append(f"{text}, {listed}")
    return Diagnostic(
        "DFS304",
        f"{timeline.step_text(plain)} is in the timeline twice",
        Label(step.span, "again here"),
        (Label(first.span, "first here"),),
        notes=tuple(notes),
    )


def _missing(
    part: model.Part, missing: Sequence[int], timeline: Timeline, header: Span
) -> Diagnostic:
    if len(missing) == timeline.pieces:
        message = f"part '{part.name}' is never in the timeline"
    else:
        steps = [f"{part.name}[{timeline.piece_names[piece]}]" for piece in missing]
        verb = "is" if len(steps) == 1 else "are"
        message = f"{', '.join(steps)} {verb} missing from the timeline"
    return Diagnostic(
        "DFS304",
        message,
        Label(part.name_span, "declared here"),
        (Label(header, "not in here"),),
        helps=("every part runs once for each piece",),
    )
