"""A plan in the making: statements by layer, and what the timeline says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.plan.model import (
    Block,
    Call,
    Choice,
    InputOperand,
    Layer,
    Loop,
    Operand,
    Plan,
    Program,
    Segment,
    Statement,
    Straight,
)
from dynaflow_dsl.resolve.model import Run, Step, Window
from tests.simulator.lifetimes import Line, walk
from tests.simulator.random_models import FETCH, RING, Drawing, place, with_windows


@dataclass(frozen=True, slots=True)
class Draft:
    """Statements with their layers; `claims` are pairs of calls said to overlap, and
    `said` pairs of which the second is said to come after the first."""

    drawing: Drawing
    binding: Binding
    lines: list[Line]
    claims: tuple[tuple[Call, Call], ...] = ()
    said: tuple[tuple[Call, Call], ...] = ()

    def plan(self, sequential: Program) -> Plan:
        """The plan, with layers of equal text as loops."""
        binding = with_windows(self.binding, tuple(self._windows()))
        return Plan(
            binding,
            self.drawing.streams,
            Program(rolled(self)),
            sequential,
            {FETCH: RING},
        )

    def _windows(self) -> list[Window]:
        windows = []
        for left, right in self.claims:
            runs = tuple(Run(c.stream, (self._step(c),)) for c in (left, right))
            windows.append(Window(runs, "", place(5)))
        for earlier, later in self.said:
            step = replace(self._step(later), after=(self._step(earlier),))
            windows.append(Window((Run(later.stream, (step,)),), "", place(6)))
        return windows

    def _step(self, call: Call) -> Step:
        piece = call.piece if self.drawing.pieces > 1 else 0
        return Step(call.part, piece, False, call.span)


def with_claims(draft: Draft, random: Random) -> Draft:
    """Some true things that a timeline may say."""
    unordered, ordered = pairs(draft)
    claims = random.sample(unordered, min(len(unordered), random.randint(0, 2)))
    said = random.sample(ordered, min(len(ordered), random.random() < 0.2))
    return replace(draft, claims=tuple(claims), said=tuple(said))


def pairs(draft: Draft) -> tuple[list[tuple[Call, Call]], list[tuple[Call, Call]]]:
    """Pairs of steps on two streams that nothing orders in any layer, and pairs of
    which the second follows the first in every layer."""
    found = walk(draft.lines, draft.drawing.streams)
    calls: dict[tuple[str, int | None], dict[int, int]] = {}
    inner = {part.name for part in draft.drawing.parts}
    for n, (_, statement) in enumerate(draft.lines):
        if isinstance(statement, Call) and statement.part in inner:
            step = calls.setdefault((statement.part, statement.piece), {})
            step[statement.layer.offset] = n
    unordered, ordered = [], []
    steps = list(calls.items())
    for k, (_, left) in enumerate(steps):
        for _, right in steps[k + 1 :]:
            both = [(left[i], right[i]) for i in left if i in right]
            first, second = (draft.lines[n][1] for n in both[0])
            assert isinstance(first, Call)
            assert isinstance(second, Call)
            if first.stream == second.stream:
                continue
            follows = [a in found.starts[b] for a, b in both]
            if not any(follows) and not any(b in found.starts[a] for a, b in both):
                unordered.append((first, second))
            elif all(follows):
                ordered.append((first, second))
    return unordered, ordered


def rolled(draft: Draft) -> tuple[Segment, ...]:
    """Straight text, but layers that follow each other with equal text as a loop."""
    layers = draft.drawing.layers
    blocks = [
        tuple(s for layer, s in draft.lines if layer == i) for i in range(layers + 1)
    ]
    together = [layer for layer, _ in draft.lines]
    if together != sorted(together):
        # Layers are mixed.
        return (_straight([s for _, s in draft.lines]),)
    segments: list[Segment] = []
    i = 0
    while i < layers:
        text = _relative(blocks[i], i)
        stop = i + 1
        while stop < layers and _relative(blocks[stop], stop) == text:
            stop += 1
        if stop > i + 1:
            segments.append(Loop((Block("", text),), 0, i, stop))
        else:
            segments.append(_straight(blocks[i]))
        i = stop
    return (*segments, _straight(blocks[layers]))


def _straight(statements: Sequence[Statement]) -> Straight:
    return Straight((Block("", tuple(statements)),))


def _relative(statements: Sequence[Statement], i: int) -> tuple[Statement, ...]:
    """The statements of a layer in terms of the loop's variable."""
    return tuple(
        replace(
            s,
            layer=_in_loop(s.layer, i),
            operands=tuple(_operand(operand, i) for operand in s.operands),
            span=place(7),
        )
        if isinstance(s, Call)
        else s
        for s in statements
    )


def _in_loop(layer: Layer, i: int) -> Layer:
    return Layer(layer.offset - i, in_loop=True)


def _operand(operand: Operand, i: int) -> Operand:
    match operand:
        case InputOperand(_, Layer() as layer) | Choice(layer=layer):
            return replace(operand, layer=_in_loop(layer, i))
        case _:
            return operand
