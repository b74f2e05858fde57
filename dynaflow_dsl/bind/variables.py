"""Which results take turns in one variable.

All iterations of a part give their k-th result the same name. What an iteration hands
to the next one has one name too, whoever makes it last: the part, or the gap that
replaces it. So the text of every iteration is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class _Classes:
    """Sets of results, by one of each."""

    leader: dict[Output, Output] = field(default_factory=dict)

    def find(self, key: Output) -> Output:
        while self.leader.setdefault(key, key) != key:
            key = self.leader[key]
        return key

    def joined(self, left: Output, right: Output) -> _Classes:
        """The same sets with two of them made one."""
        classes = _Classes(dict(self.leader))
        classes.leader[classes.find(right)] = classes.find(left)
        return classes


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
    classes = _Classes()
    for left, right in _same_input(program):
        classes = classes.joined(left, right)
    stuck = next(_replaced(program, classes), None)
    if stuck is not None:
        raise stuck
    for left, right in (*_same_gap(program), *_handed_over(program)):
        tried = classes.joined(left, right)
        if next(_replaced(program, tried), None) is None:
            classes = tried
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


def _replaced(program: _Program, classes: _Classes) -> Iterator[Mismatch]:
    """Reads of a result whose variable holds another one by then."""
    held: dict[Output, str] = {}
    gap_at = {}
    if program.gaps is not None:
        for n, place in enumerate(program.gaps.places):
            gap_at[place] = program.gaps.part.instances[n]

    def lost(values: Sequence[str]) -> Iterator[str]:
        for value in values:
            key = program.key(value)
            if key is not None and held.get(classes.find(key)) != value:
                yield value

    def make(values: Sequence[str]) -> None:
        for value in values:
            if (key := program.key(value)) is not None:
                held[classes.find(key)] = value

    for s, section in enumerate(program.sections):
        for i in range(len(section.iterations)):
            first = section.parts[0].name
            gap = gap_at.get(Place(s, i))
            if gap is not None:
                for value in lost(gap.inputs):
                    yield _mismatch(program, value, first, i)
                make(gap.outputs)
            for part in section.parts:
                instance = part.instances[i]
                before = [
                    value
                    for value, role in zip(instance.inputs, part.roles, strict=True)
                    if not isinstance(role, Produced)
                ]
                for value in lost(before):
                    yield _mismatch(program, value, part.name, i)
            for part in section.parts:
                make(part.instances[i].outputs)
    last = program.after.instances[0].inputs if program.after is not None else ()
    for value in lost((*last, *program.results)):
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
    return Mismatch(part, (max(i - 1, 0), i), reason)
