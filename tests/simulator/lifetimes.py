"""Where names may go in a plan that is being drawn, and what streams know there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from dynaflow_dsl.plan.model import (
    Allocate,
    Call,
    Choice,
    Free,
    Hold,
    InputOperand,
    Join,
    Merge,
    Operand,
    Record,
    Return,
    Slices,
    Statement,
    Wait,
)

# A statement with the layer that it belongs to.
Line: TypeAlias = tuple[int, Statement]


@dataclass(slots=True, eq=False)
class Memory:
    """What one statement has made: its stream and every statement that reads it."""

    stream: str
    readers: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Binding:
    """A name's hold on memory, from a statement to the one that rebinds the name."""

    name: str
    memory: Memory
    start: int
    last_use: int
    end: int


@dataclass(slots=True)
class Walk:
    """What is known after each statement, by stream, and what names hold when."""

    known: list[dict[str, frozenset[int]]] = field(default_factory=list)
    starts: dict[int, frozenset[int]] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)

    def may_go(self, memory: Memory, place: int) -> bool:
        """Whether the maker's stream knows every reader after a statement."""
        return self.known[place][memory.stream].issuperset(memory.readers)


def names_in(operands: Sequence[Operand]) -> Iterator[str]:
    """The variables that operands read."""
    for operand in operands:
        match operand:
            case InputOperand():
                pass
            case Choice(options):
                yield from names_in(options)
            case _:
                yield operand.name


def walk(lines: Sequence[Line], streams: Sequence[str]) -> Walk:
    """Go over the statements once; what has no value by then is passed over."""
    found = Walk()
    known = {stream: frozenset[int]() for stream in streams}
    events: dict[str, frozenset[int]] = {}
    current: dict[str, Binding] = {}

    def bind(name: str, memory: Memory, n: int) -> None:
        if name in current:
            current[name].end = n
        current[name] = Binding(name, memory, n, n, len(lines))
        found.bindings.append(current[name])

    def read(names: Iterator[str] | Sequence[str], n: int) -> None:
        for name in names:
            if name in current:
                current[name].last_use = n
                current[name].memory.readers.append(n)

    for n, (_, statement) in enumerate(lines):
        match statement:
            case Call(stream=stream, operands=operands, results=results, into=into):
                found.starts[n] = known[stream]
                read(names_in(operands), n)
                read(names_in([target.where for target in into]), n)
                known[stream] |= {n}
                for name in results:
                    bind(name, Memory(stream), n)
            case Allocate(target, stream):
                known[stream] |= {n}
                bind(target, Memory(stream), n)
            case Merge(target, pieces, _, stream):
                read(pieces, n)
                known[stream] |= {n}
                bind(target, Memory(stream), n)
            case Slices(targets, base):
                for name in names_in((base,)):
                    if name not in current:
                        continue
                    current[name].last_use = n
                    for target in targets:
                        bind(target, current[name].memory, n)
            case Record(event, stream):
                events[event] = known[stream]
            case Wait(stream, event):
                known[stream] |= events.get(event, frozenset())
            case Join():
                everything = frozenset[int]().union(*known.values())
                known = dict.fromkeys(streams, everything)
            case Free(names) | Hold(names):
                for name in names:
                    if name in current:
                        current.pop(name).end = n
            case Return(operands):
                for name in names_in(operands):
                    if name in current:
                        current[name].last_use = n
        found.known.append(dict(known))
    return found


def with_frees(
    lines: Sequence[Line], streams: Sequence[str], random: Random
) -> list[Line]:
    """Some names dropped as soon as they may go; held where replacing them is early."""
    found = walk(lines, streams)
    added: dict[int, list[Statement]] = {}
    dropped = {binding.name: random.random() < 0.6 for binding in found.bindings}
    for binding in found.bindings:
        places = range(binding.last_use, min(binding.end, len(lines) - 1))
        legal = (n for n in places if found.may_go(binding.memory, n))
        n = next(legal, None)
        if dropped[binding.name] and n is not None and n != binding.end:
            added.setdefault(n, []).append(Free((binding.name,)))
        elif binding.end < len(lines) and not found.may_go(binding.memory, binding.end):
            added.setdefault(binding.start, []).append(Hold((binding.name,)))
    return [
        (layer, each)
        for n, (layer, statement) in enumerate(lines)
        for each in (statement, *added.get(n, ()))
    ]


def awaited(lines: Sequence[Line], random: Random) -> list[Line]:
    """Without most of the records for which nobody waits."""
    kept = []
    for n, (layer, statement) in enumerate(lines):
        if isinstance(statement, Record) and random.random() > 0.1:
            rest = (s for _, s in lines[n + 1 :])
            later = next(
                (
                    s
                    for s in rest
                    if isinstance(s, Record | Wait) and s.event == statement.event
                ),
                None,
            )
            if not isinstance(later, Wait):
                continue
        kept.append((layer, statement))
    return kept
