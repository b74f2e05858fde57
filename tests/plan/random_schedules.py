"""Random layered models with random timelines, most of them nearly right."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.plan.layered import Layered, Read, Shape
from tests.plan.reasons import Step, Windows

STREAMS = ("main", "left", "right", "far")


@dataclass(frozen=True, slots=True)
class Case:
    """A model, where its parts run, and a timeline as text and as windows."""

    model: Layered
    pieces: int
    on: dict[str, str | list[str]]
    timeline: str
    windows: Windows
    streams: tuple[str, ...]


@st.composite
def models(draw: st.DrawFn) -> Layered:
    names = ["a", "b", "c", "d", "e"][: draw(st.integers(2, 5))]
    outputs = {name: draw(st.sampled_from([1, 1, 1, 2])) for name in names}
    caches = draw(st.sampled_from([("", "", "w", "r"), ("", "", "", "W", "R")]))
    shapes: list[Shape] = []
    for n, name in enumerate(names):
        reads: dict[Read, None] = {}
        if n == 0 or draw(st.booleans()):
            who = draw(st.sampled_from(names[max(n, len(names) - 2) :]))
            output = draw(st.integers(0, outputs[who] - 1))
            reads[Read(who, output, carried=True)] = None
        earlier = [(name, k) for name in names[:n] for k in range(outputs[name])]
        for part, k in (
            draw(st.lists(st.sampled_from(earlier), max_size=3)) if n else ()
        ):
            reads[Read(part, k)] = None
        if not reads or draw(st.integers(0, 5)) == 0:
            reads[Read(None)] = None
        cache = draw(st.sampled_from(caches))
        shapes.append(Shape(name, tuple(reads), outputs[name], cache))
    made = [(s.name, k) for s in shapes for k in range(s.outputs)]
    last = made[-1]
    head = tuple(
        {last: None, **dict.fromkeys(draw(st.lists(st.sampled_from(made), max_size=2)))}
    )
    if draw(st.integers(0, 3)) == 0:
        results, head = head, ()
    else:
        results = tuple(
            dict.fromkeys(draw(st.lists(st.sampled_from(made), max_size=1)))
        )
    # What layers carry is read after the last one too, as in any model.
    carried = [(r.part, r.output) for s in shapes for r in s.reads if r.carried]
    if head:
        head = tuple(dict.fromkeys((*head, *carried)))
    else:
        results = tuple(dict.fromkeys((*results, *carried)))
    layers = draw(st.sampled_from([1, 2, 3, 4, 5, 9]))
    embed, shortcut = draw(st.booleans()), draw(st.integers(0, 4)) == 0
    return Layered(tuple(shapes), layers, results, head, embed, shortcut)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    model = draw(models())
    pieces = draw(st.sampled_from([1, 2, 2, 2, 3, 4]))
    streams = STREAMS[: draw(st.sampled_from([1, 2, 2, 3, 4]))]
    names = [shape.name for shape in model.shapes]
    where: dict[str, list[str]] = {}
    for name in names:
        if draw(st.integers(0, 3)) == 0:
            where[name] = [draw(st.sampled_from(streams)) for _ in range(pieces)]
        else:
            where[name] = [draw(st.sampled_from(streams))] * pieces
    on: dict[str, str | list[str]] = {
        name: given[0] if len(set(given)) == 1 else given
        for name, given in where.items()
    }
    used = tuple(s for s in streams[1:] if any(s in given for given in where.values()))
    limit = (len(names) // (pieces - 1)) if pieces > 1 else 0
    if limit and draw(st.booleans()):
        by = draw(st.integers(1, limit))
        text = f"stagger mb by {by}:\n" + "\n".join(f"    {name}" for name in names)
        windows = _staggered(names, pieces, by, where)
    else:
        windows = _ordered(draw, names, pieces, where)
        text = "order:\n" + "\n".join(
            "    "
            + " | ".join(", ".join(_text(s, pieces) for s in run) for run in window)
            for window in windows
        )
    return Case(model, pieces, on, text, windows, used)


def _text(step: Step, pieces: int) -> str:
    index = f"[{step.piece}]" if pieces > 1 else ""
    return f"{'prev.' if step.previous else ''}{step.part}{index}"


def _staggered(
    names: list[str], pieces: int, by: int, where: dict[str, list[str]]
) -> Windows:
    windows = []
    for k in range(len(names)):
        runs: dict[str, list[Step]] = {}
        for piece in range(pieces):
            stage = k - by * piece
            part = names[stage % len(names)]
            stream = where[part][piece]
            runs.setdefault(stream, []).append(Step(part, piece, stage < 0, stream))
        windows.append(list(runs.values()))
    return windows


def _ordered(
    draw: st.DrawFn, names: list[str], pieces: int, where: dict[str, list[str]]
) -> Windows:
    """Each piece in its own order, merged at random, the tail moved to the front."""
    left = {piece: list(names) for piece in range(pieces)}
    sequence: list[tuple[str, int]] = []
    while left:
        piece = draw(st.sampled_from(sorted(left)))
        sequence.append((left[piece].pop(0), piece))
        if not left[piece]:
            del left[piece]
    moved = draw(st.integers(0, len(sequence) // 2)) if draw(st.booleans()) else 0
    stay = [(*item, False) for item in sequence[: len(sequence) - moved]]
    early = [(*item, True) for item in sequence[len(sequence) - moved :]]
    merged = []
    while stay or early:
        source = early if early and (not stay or draw(st.booleans())) else stay
        merged.append(source.pop(0))
    if draw(st.integers(0, 3)) == 0:
        one = draw(st.integers(0, len(merged) - 1))
        other = draw(st.integers(0, len(merged) - 1))
        merged[one], merged[other] = merged[other], merged[one]
    windows: list[list[list[Step]]] = []
    for part, piece, previous in merged:
        step = Step(part, piece, previous, where[part][piece])
        window = windows[-1] if windows and draw(st.integers(0, 2)) else None
        if window is None:
            windows.append([[step]])
            continue
        run = next((r for r in window if r[0].stream == step.stream), None)
        if run is not None:
            run.append(step)
        else:
            window.append([step])
    return windows
