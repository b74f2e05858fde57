"""The distinct programs of a part, and what each of them gives away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.fragments import Fragment, ProgramKey

Kind: TypeAlias = tuple[object, ...]


class Mismatch(Exception):
    """Two iterations of a part that are connected differently; caught in `bind`.

    `value` is the result that is read too late, where the reason is that.
    """

    def __init__(
        self,
        part: str,
        iterations: tuple[int, int],
        reason: str,
        value: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.part, self.iterations, self.reason = part, iterations, reason
        self.value = value


class Place(NamedTuple):
    """A result in a program: which operation, and which of its results."""

    step: int
    result: int


@dataclass(slots=True)
class Grouped:
    """Instances of one part by program, with the outputs of each program."""

    fragments: list[Fragment]
    body_of: list[int]
    outputs: list[list[Place]]


def group(
    part: str,
    fragments: list[Fragment],
    dependence: Dependence,
    read_outside: frozenset[str],
) -> Grouped:
    """Sort a part's fragments by program and find what each program gives away.

    Every program gives away as much as any other, though nobody may read it. Raises
    Mismatch when a program has nothing of the kind.
    """
    bodies: dict[ProgramKey, int] = {}
    body_of = [bodies.setdefault(f.key, len(bodies)) for f in fragments]
    pairs = list(zip(fragments, body_of, strict=True))
    read: list[set[Place]] = [set() for _ in bodies]
    for fragment, body in pairs:
        for place, name in leaving(fragment, dependence):
            if name in read_outside:
                read[body].add(place)
    longest = max(range(len(read)), key=lambda body: len(read[body]))
    wanted = sorted(read[longest])
    given: list[list[Place]] = []
    for body, mine in enumerate(read):
        if len(mine) == len(wanted):
            given.append(sorted(mine))
            continue
        theirs, ours = (
            _kinds([f for f, b in pairs if b == wanted_body], dependence)
            for wanted_body in (longest, body)
        )
        found = _completed({place: theirs[place] for place in wanted}, mine, ours)
        if found is None:
            pair = (body_of.index(body), body_of.index(longest))
            raise Mismatch(part, pair, "the second gives more to other parts")
        given.append(found)
    return Grouped(fragments, body_of, given)


def outputs(group: Grouped, i: int, dependence: Dependence) -> list[str]:
    """Names of what iteration `i` of a part gives away, in the program's order."""
    fragment = group.fragments[i]
    found = []
    for step, k in group.outputs[group.body_of[i]]:
        value = dependence.operations[fragment.numbers[step]].results[k]
        # A result that this layer alone does not read has no name in its graph.
        found.append(value.name if value is not None else "")
    return found


def leaving(fragment: Fragment, dependence: Dependence) -> Iterator[tuple[Place, str]]:
    """Results that can leave a fragment: a view is made again where it is read."""
    for step, number in enumerate(fragment.numbers):
        operation = dependence.operations[number]
        if not operation.view:
            for k, value in enumerate(operation.results):
                if value is not None:
                    yield Place(step, k), value.name


def _completed(
    wanted: Mapping[Place, Kind], mine: set[Place], ours: Mapping[Place, Kind]
) -> list[Place] | None:
    """Outputs of a program that match those of another one; None if some do not.

    The last layer, say, need not give on what only a next layer would read. Results
    correspond when the same line of the model made them, else when their types agree;
    those that are read come first.
    """
    candidates = sorted(ours, key=lambda place: (place not in mine, place))
    found: dict[Place, Place] = {}
    for compared in (3, 1):
        for place, kind in wanted.items():
            taken = set(found.values())
            free = (
                candidate
                for candidate in candidates
                if candidate not in taken
                and ours[candidate][:compared] == kind[:compared]
            )
            if place not in found and (match := next(free, None)) is not None:
                found[place] = match
    if len(found) < len(wanted) or not mine <= set(found.values()):
        return None
    return [found[place] for place in wanted]


def _kinds(fragments: list[Fragment], dependence: Dependence) -> dict[Place, Kind]:
    """What the results of a program are: type, then operator, result and source line,
    and which one of these it is, counted from the end."""
    kinds: dict[Place, Kind] = {}
    for fragment in fragments:
        count: Counter[object] = Counter()
        for place, name in reversed(list(leaving(fragment, dependence))):
            operation = dependence.operations[fragment.numbers[place.step]]
            line = (operation.operator, place.result, operation.source)
            kind = (dependence.values[name].type, line, count[line])
            kinds.setdefault(place, kind)
            count[line] += 1
    return kinds
