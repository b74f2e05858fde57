"""Tiny bound models, drawn at random: parts in layers, pieces, and memory in place.

A model has up to four layers of up to three parts. Parts read each other, the layer
before and the caller's inputs; they write caches (`keys`, one tensor a layer, cut like
the batch), a `state` that all layers share, and rotating buffers (`ring`), which a part
of its own fills; and they may take turns on a process group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

from dynaflow_dsl.bind.model import (
    AFTER,
    BEFORE,
    Binding,
    Body,
    BoundPart,
    BoundSection,
    Instance,
    Iteration,
    Output,
)
from dynaflow_dsl.graph.model import Graph, Operation, Reference
from dynaflow_dsl.resolve.model import (
    Capture,
    Part,
    PathSelector,
    Schedule,
    Section,
    Split,
    Window,
)
from dynaflow_dsl.source import Source, Span

TEXT = Source("random.dfs", "".join(f"{n:03d}\n" for n in range(250)))
RING = 2

# The part that brings the weights of each layer to one of `RING` buffers.
FETCH = "fetch"


def place(number: int) -> Span:
    """A place of its own for everything that a message may point at."""
    return Span(TEXT, 4 * number, 4 * number + 3)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A part as drawn: its data, with `carried` ones from the layer before."""

    name: str
    reads: tuple[tuple[str, int, bool], ...]
    outputs: tuple[bool, ...]
    streams: tuple[str, ...]
    whole: bool
    touches: tuple[tuple[str, bool], ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Everything that a plan needs of a model."""

    layers: int
    pieces: int
    streams: tuple[str, ...]
    parts: tuple[Drawn, ...]
    head: tuple[tuple[str, int], ...]
    embed: bool
    results: tuple[tuple[str, int], ...]
    captured: bool


def draw(random: Random) -> Drawing:
    """Between three and ten steps on two to four streams."""
    streams = ("main", "left", "right", "third")[: random.choice((2, 2, 2, 3, 3, 4))]
    layers = random.choice((1, 2, 2, 3, 3, 4))
    pieces = random.choice((1, 1, 2, 2, 2, 3)) if layers < 3 else random.choice((1, 2))
    most = max(1, min(3, 8 // (layers * pieces)))
    names = ["ab", "cd", "ef"][: random.randint(1, most)]
    ring = random.random() < 0.3
    parts: list[Drawn] = []
    if ring:
        stream = random.choice(streams[1:])
        parts.append(Drawn(FETCH, (), (), (stream,) * pieces, True, (("ring", True),)))
    made: list[tuple[str, int]] = []
    state, keys = random.random() < 0.35, random.random() < 0.45
    group = random.random() < 0.45
    later = [(name, 0) for name in names]
    for n, name in enumerate(names):
        choices = [(part, k, False) for part, k in made]
        choices += [(part, 0, True) for part, _ in later]
        choices += [("x", 0, False)] + [("m", 0, False)] * (random.random() < 0.3)
        reads = random.sample(choices, min(len(choices), random.randint(1, 2)))
        if n and random.random() < 0.6:
            reads = [(*made[-1], False), *(r for r in reads[:1] if r[:2] != made[-1])]
        touches: tuple[tuple[str, bool], ...] = ()
        if ring and (n == len(names) - 1 or random.random() < 0.5):
            touches += (("ring", False),)
        if state and random.random() < 0.7:
            touches += (("state", random.random() < 0.6),)
        if keys and random.random() < 0.7:
            touches += (("keys", random.random() < 0.6),)
        apart = n > 0 and n == len(names) - 1 and random.random() < 0.6
        if apart:
            # Nobody reads what it makes.
            reads = [("x", 0, False)]
        outputs = tuple(random.random() < 0.85 for _ in range(random.choice((1, 1, 2))))
        same = random.choice(streams[1:] if apart else streams)
        each = random.random() < 0.2
        on = tuple(random.choice(streams) if each else same for _ in range(pieces))
        whole = pieces == 1 or random.random() < 0.1
        on = (on[0],) * pieces if whole else on
        used = "tp" if group and (apart or random.random() < 0.8) else ""
        parts.append(
            Drawn(name, tuple(reads), (True, *outputs[1:]), on, whole, touches, used)
        )
        made += [(name, k) for k in range(len(outputs)) if not apart]
    head = tuple(random.sample(made, random.randint(1, min(2, len(made)))))
    if random.random() < 0.4:
        head = ()
    results = (random.choice(made),) if not head or random.random() < 0.2 else ()
    return Drawing(
        layers,
        pieces,
        streams,
        tuple(parts),
        head,
        random.random() < 0.6,
        results,
        random.random() < 0.25,
    )


def value_of(part: str, layer: int, output: int) -> str:
    return f"{part}@{layer}.{output}"


def bound(drawing: Drawing, windows: tuple[Window, ...]) -> Binding:
    """The binding of a drawn model, with the windows of its timeline."""
    axes = {"x": 0, **{f"keys.{i}": 0 for i in range(drawing.layers)}}
    parts = [_part(n, part, drawing, axes) for n, part in enumerate(drawing.parts)]
    before = after = None
    if drawing.embed:
        before = _outside(BEFORE, ("x",), ("h",))
        axes["h"] = 0
    last = drawing.layers - 1
    results = tuple(value_of(part, last, k) for part, k in drawing.results)
    if drawing.head:
        read = tuple(value_of(part, last, k) for part, k in drawing.head)
        after = _outside(AFTER, read, ("logits",))
        axes["logits"] = 0
        results = ("logits", *results)
    section = Section(
        None,
        tuple(_scheduled(n, part) for n, part in enumerate(drawing.parts)),
        windows,
        "order",
        place(1),
        place(1),
    )
    iterations = tuple(Iteration(i, f"layers.{i}") for i in range(drawing.layers))
    weights = (Fraction(1),) * drawing.pieces
    split = Split("batch", weights, "mb", 1, place(2)) if drawing.pieces > 1 else None
    captures = (Capture("batch", (4,), place(3), place(3)),) * drawing.captured
    return Binding(
        Schedule(
            "random",
            "",
            (),
            split,
            (section,),
            place(0),
            place(0),
            captures=captures,
        ),
        Graph("run", (), (), results, (("batch", 1, None),), (), ()),
        (BoundSection(section, iterations, tuple(parts)),),
        before,
        None,
        after,
        axes,
        {
            Output(part.name, k): n
            for n, (part, k) in enumerate(
                (part, k)
                for part in parts
                for k in range(len(part.instances[0].outputs))
            )
        },
        frozenset(p.name for p in drawing.parts if p.whole and drawing.pieces > 1),
        results,
    )


def _scheduled(n: int, part: Drawn) -> Part:
    selector = PathSelector("scope", (part.name,), place(10 + n))
    return Part(part.name, part.streams, selector, place(10 + n), place(10 + n))


def _part(n: int, part: Drawn, drawing: Drawing, axes: dict[str, int]) -> BoundPart:
    instances = []
    for i in range(drawing.layers):
        inputs = [_input(read, i, drawing) for read in part.reads]
        outputs = tuple(value_of(part.name, i, k) for k in range(len(part.outputs)))
        axes |= {v: 0 for v, cut in zip(outputs, part.outputs, strict=True) if cut}
        touched = tuple(
            (memory(name, i), writes) for name, writes in part.touches if name != "ring"
        )
        inputs += [name for name, _ in touched]
        brought = any(name == "ring" for name, _ in part.touches)
        parameters = (f"layers.{i}.weight",) if brought else ()
        instances.append(
            Instance(
                0,
                (),
                tuple(inputs),
                parameters,
                outputs,
                touched,
                (FETCH,) if brought and part.name != FETCH else (),
            )
        )
    body = Body((), instances[0].inputs, (), instances[0].outputs)
    bound_part = BoundPart(
        part.name,
        (body,),
        tuple(instances),
        (),
        frozenset(),
        fetches=part.name == FETCH,
    )
    return with_group(bound_part, part.group) if part.group else bound_part


def with_group(part: BoundPart, group: str = "tp") -> BoundPart:
    """The part with an all-reduce."""
    operator = "_c10d_functional.all_reduce.default"
    arguments = (Reference("x"), "sum", group)
    reduce = Operation("r", operator, arguments, (), (), False, (), False, (), "", None)
    return replace(part, bodies=(replace(part.bodies[0], operations=(reduce,)),))


def with_hidden(part: BoundPart) -> BoundPart:
    """The part with a write to memory that is none of its arguments."""
    instances = (
        replace(i, touched=(*dict.fromkeys((*i.touched, ("hidden", True))),))
        for i in part.instances
    )
    return replace(part, instances=tuple(instances))


def memory(name: str, layer: int) -> str:
    """The tensor that a layer touches."""
    return {"ring": f"ring.{layer % RING}", "keys": f"keys.{layer}"}.get(name, name)


def _input(read: tuple[str, int, bool], layer: int, drawing: Drawing) -> str:
    part, output, carried = read
    if part in ("x", "m"):
        return part
    if carried and layer == 0:
        return "h" if drawing.embed else "x"
    return value_of(part, layer - carried, output)


def _outside(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> BoundPart:
    instance = Instance(0, (), inputs, (), outputs, ())
    body = Body((), inputs, (), outputs)
    return BoundPart(name, (body,), (instance,), (), frozenset())


def with_windows(binding: Binding, windows: tuple[Window, ...]) -> Binding:
    """The same binding with other claims."""
    bound_section = binding.sections[0]
    section = replace(bound_section.section, windows=windows)
    schedule = replace(binding.schedule, sections=(section,))
    sections = (replace(bound_section, section=section),)
    return replace(binding, schedule=schedule, sections=sections)
