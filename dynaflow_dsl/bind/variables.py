"""Which results take turns in one variable.

All iterations of a part give their k-th result the same name. What an iteration hands
to the next one has one name too, whoever makes it last: the part, or the gap that
replaces it. So the text of every iteration is the same.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dynaflow_dsl.bind.model import (
    GAP,
    BoundPart,
    BoundSection,
    Carried,
    Gaps,
    Output,
    Place,
    Produced,
)
from dynaflow_dsl.bind.programs import Mismatch
from dynaflow_dsl.bind.roles import Origins


class _Span(NamedTuple):
    """When a value is made, and when it is read for the last time: counts of what was
    made before."""

    made: int
    read: int


@dataclass(slots=True)
class _Classes:
    """Sets of results that share a variable, by one of each.

    `spans` are those of the values that a set's variable holds, in the order in which
    they are made.
    """

    spans: dict[Output, list[_Span]]
    leader: dict[Output, Output] = field(default_factory=dict)

    def find(self, key: Output) -> Output:
        """The result that stands for a set."""
        leader = self.leader
        while (parent := leader.setdefault(key, key)) != key:
            # The path is halved on the way, so that paths stay short.
            leader[key] = key = leader.setdefault(parent, parent)
        return key

    def join(self, left: Output, right: Output) -> None:
        """Make one set of two; the smaller one goes into the larger."""
        large, small = self._by_size(left, right)
        if large != small:
            self.leader[small] = large
            spans = self.spans.setdefault(large, [])
            for span in self.spans.pop(small, ()):
                insort(spans, span)

    def fit(self, left: Output, right: Output) -> bool:
        """Whether every value of two sets would be read before the next one is made.

        In each of them that holds, so only neighbours of different sets can clash.
        """
        large, small = self._by_size(left, right)
        if large == small:
            return True
        spans = self.spans.get(large, [])
        for span in self.spans.get(small, ()):
            place = bisect(spans, span)
            if place and spans[place - 1].read >= span.made:
                return False
            if place < len(spans) and span.read >= spans[place].made:
                return False
        return True

    def _by_size(self, left: Output, right: Output) -> tuple[Output, Output]:
        one, other = self.find(left), self.find(right)
        sizes = [len(self.spans.get(key, ())) for key in (one, other)]
        return (one, other) if sizes[0] >= sizes[1] else (other, one)


@dataclass(frozen=True, slots=True)
class _Program:
    """What is made and read where, in program order."""

    sections: Sequence[BoundSection]
    gaps: Gaps | None
    after: BoundPart | None
    results: Sequence[str]
    origins: Origins
    joined: Collection[str]

    def key(self, value: str) -> Output | None:
        """What makes a value; None where no part and no gap does."""
        made = self.origins.made.get(value)
        if made is None:
            return None
        gap = made.iteration if made.part == GAP else 0
        return Output(made.part, made.output, gap)

    def alike(self, left: Output, right: Output) -> bool:
        """Whether both are made whole, or both piece by piece."""
        return (left.part in self.joined) == (right.part in self.joined)


def number_variables(
    sections: Sequence[BoundSection],
    gaps: Gaps | None,
    after: BoundPart | None,
    results: Sequence[str],
    origins: Origins,
    joined: Collection[str],
) -> Mapping[Output, int]:
    """A number for each result of a part or a gap; equal numbers share a variable.

    Raises Mismatch where a result would be replaced before it is read.
    """
    program = _Program(sections, gaps, after, results, origins, joined)
    classes = _Classes(_spans(program))
    for left, right in _same_input(program):
        classes.join(left, right)
    stuck = next(_replaced(program, classes), None)
    if stuck is not None:
        raise stuck
    for left, right in (*_same_gap(program), *_handed_over(program)):
        if classes.fit(left, right):
            classes.join(left, right)
    numbers: dict[Output, int] = {}
    return {
        key: numbers.setdefault(classes.find(key), len(numbers))
        for key in _outputs(program)
    }


def _outputs(program: _Program) -> Iterator[Output]:
    for section in program.sections:
        for part in section.parts:
            for k in range(len(part.bodies[0].outputs)):
                yield Output(part.name, k)
    if program.gaps is not None:
        for n, instance in enumerate(program.gaps.part.instances):
            for k in range(len(instance.outputs)):
                yield Output(GAP, k, n)


def _same_input(program: _Program) -> Iterator[tuple[Output, Output]]:
    """Results that one input of a part reads in different iterations."""
    for section in program.sections:
        for part in section.parts:
            for position, role in enumerate(part.roles):
                if not isinstance(role, Carried):
                    continue
                values = (i.inputs[position] for i in part.instances[1:])
                keys = [key for value in values if (key := program.key(value))]
                for key in keys[1:]:
                    if program.alike(keys[0], key):
                        yield keys[0], key


def _same_gap(program: _Program) -> Iterator[tuple[Output, Output]]:
    """Results of gaps of one section that run the same program."""
    if program.gaps is None:
        return
    latest: dict[tuple[int, int], int] = {}
    places = program.gaps.places
    for n, instance in enumerate(program.gaps.part.instances):
        if places[n].iteration > 0:
            earlier = latest.get((places[n].section, instance.body))
            if earlier is not None:
                for k in range(len(instance.outputs)):
                    yield Output(GAP, k, earlier), Output(GAP, k, n)
            latest[(places[n].section, instance.body)] = n


def _handed_over(program: _Program) -> Iterator[tuple[Output, Output]]:
    """What a section starts from, and what its iterations make of it."""
    for section in program.sections:
        for part in section.parts:
            for position, role in enumerate(part.roles):
                if not isinstance(role, Carried):
                    continue
                first = program.key(role.initial)
                values = (i.inputs[position] for i in part.instances[1:])
                keys = [key for value in values if (key := program.key(value))]
                if first is not None and keys and program.alike(first, keys[0]):
                    yield first, keys[0]


class _Read(NamedTuple):
    """Values that a part (or what runs before its section's first one) reads."""

    values: Sequence[str]
    part: str
    iteration: int


class _Make(NamedTuple):
    """Values that are made after each other."""

    values: Sequence[str]


def _events(program: _Program) -> Iterator[_Read | _Make]:
    """What reads a variable that an earlier iteration wrote, and what writes one.

    What parts of one iteration hand to each other is left out.
    """
    gap_at = {}
    if program.gaps is not None:
        for n, place in enumerate(program.gaps.places):
            gap_at[place] = program.gaps.part.instances[n]
    for s, section in enumerate(program.sections):
        for i in range(len(section.iterations)):
            gap = gap_at.get(Place(s, i))
            if gap is not None:
                yield _Read(gap.inputs, section.parts[0].name, i)
                yield _Make(gap.outputs)
            for part in section.parts:
                instance = part.instances[i]
                pairs = zip(instance.inputs, part.roles, strict=True)
                before = [v for v, role in pairs if not isinstance(role, Produced)]
                yield _Read(before, part.name, i)
            for part in section.parts:
                yield _Make(part.instances[i].outputs)


def _read_last(program: _Program) -> Sequence[str]:
    """What is read when all sections have run."""
    last = program.after.instances[0].inputs if program.after is not None else ()
    return (*last, *program.results)


def _spans(program: _Program) -> dict[Output, list[_Span]]:
    """The spans of the values of each result."""
    made: dict[str, int] = {}
    read: dict[str, int] = {}
    clock = 0
    for event in _events(program):
        match event:
            case _Read(values):
                read.update((value, clock) for value in values)
            case _Make(values):
                for value in values:
                    if value:
                        clock += 1
                        made[value] = clock
    read.update((value, clock) for value in _read_last(program))
    found: dict[Output, list[_Span]] = {}
    for value, number in made.items():
        if (key := program.key(value)) is not None:
            span = _Span(number, max(number, read.get(value, 0)))
            found.setdefault(key, []).append(span)
    return found


def _replaced(program: _Program, classes: _Classes) -> Iterator[Mismatch]:
    """Reads of a result whose variable holds another one by then."""
    held: dict[Output, str] = {}

    def lost(values: Sequence[str]) -> Iterator[str]:
        for value in values:
            key = program.key(value)
            if key is not None and held.get(classes.find(key)) != value:
                yield value

    for event in _events(program):
        match event:
            case _Read(values, part, i):
                for value in lost(values):
                    yield _mismatch(program, value, part, i)
            case _Make(values):
                for value in values:
                    if (key := program.key(value)) is not None:
                        held[classes.find(key)] = value
    for value in lost(_read_last(program)):
        made = program.origins.made[value]
        yield _mismatch(program, value, made.part, made.iteration)


def _mismatch(program: _Program, value: str, part: str, i: int) -> Mismatch:
    made = program.origins.made[value]
    if part == GAP:
        part, i = program.sections[-1].parts[-1].name, 0
    name = (
        "what was made between them" if made.part == GAP else f"what {made.part} made"
    )
    reason = f"the second reads {name} after it was replaced"
    return Mismatch(part, (max(i - 1, 0), i), reason, value)
