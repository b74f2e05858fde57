"""Consecutive modules inside one program that do the same: its text has a loop there.

A part may hold whole towers (`part text = .text_model`). What its layers do is found as
the layers of an `each` are: by equal programs and by what one reads of the one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dynaflow_dsl.bind.dependence import Dependence, analyse
from dynaflow_dsl.bind.fragments import (
    Fragment,
    ProgramKey,
    fragment_of,
    program_key,
)
from dynaflow_dsl.bind.interface import bound_part
from dynaflow_dsl.bind.model import Body, BoundPart, Iteration
from dynaflow_dsl.bind.programs import Mismatch, group, outputs
from dynaflow_dsl.bind.repeated import share_program
from dynaflow_dsl.bind.roles import Made, Origins, find_roles
from dynaflow_dsl.graph.model import Graph, Input, TensorType, Value

# The name of what runs in a loop, which no part has.
INSIDE = "inside"

# A loop and a function of fewer operations than this say less than the text itself.
FEWEST_SAVED = 8


@dataclass(frozen=True, slots=True)
class Run:
    """Operations `start` to `stop` of a program: modules that run one after another.

    `parent` is the path that holds them, `part` what they do, one iteration for each.
    """

    start: int
    stop: int
    parent: str
    iterations: tuple[Iteration, ...]
    part: BoundPart

    @property
    def own(self) -> frozenset[str]:
        """Tensors of the model that one of the modules reads and no other does."""
        return frozenset(
            name for instance in self.part.instances for name in instance.parameters
        )


class _Block(NamedTuple):
    """What one module of a family does: operations `start` to `stop`."""

    number: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Program:
    """A program as a graph of its own; the caller reads its outputs last of all."""

    body: Body
    graph: Graph
    dependence: Dependence
    types: Mapping[str, TensorType]
    last_reader: Mapping[str, int]


def find_runs(body: Body, values: Mapping[str, Value]) -> tuple[Run, ...]:
    """The runs of a program, in its order; `values` are all those of its graph.

    Of modules inside modules the outermost are taken that can be.
    """
    if len(body.operations) < FEWEST_SAVED:
        return ()
    families = _families(body, 0, len(body.operations), 0)
    if not families:
        return ()
    program = _as_graph(body, values)
    found: list[Run] = []
    stack = [(family, 0) for family in reversed(families)]
    while stack:
        (parent, blocks), depth = stack.pop()
        runs = list(_runs(program, parent, blocks))
        found += runs
        taken = {n for run in runs for n in range(run.start, run.stop)}
        deeper = [
            (family, depth + 1)
            for block in blocks
            if block.start not in taken
            for family in _families(body, block.start, block.stop, depth + 1)
        ]
        stack += reversed(deeper)
    return tuple(sorted(found, key=lambda run: run.start))


def _as_graph(body: Body, values: Mapping[str, Value]) -> _Program:
    # A view may leave a module here: the text hands it on as it is.
    operations = tuple(replace(each, view=False) for each in body.operations)
    given = [Input(name, "step", values[name], 0) for name in body.inputs]
    given += [Input(name, "parameter", values[name]) for name in body.parameters]
    graph = Graph(
        entry="",
        inputs=(*given, *body.constants),
        operations=operations,
        outputs=body.outputs,
        dimensions=(),
        signature=(),
        modules=(),
    )
    dependence = analyse(graph)
    types = {name: value.type for name, value in dependence.values.items()}
    last = {name: n for n, each in enumerate(dependence.operand_names) for name in each}
    last |= dict.fromkeys(body.outputs, len(operations))
    return _Program(body, graph, dependence, types, last)


def _families(
    body: Body, start: int, stop: int, depth: int
) -> list[tuple[str, list[_Block]]]:
    """Modules with a number at some depth of numbers that follow each other, by parent.

    What runs between two of them counts to the first, modules of other parents too.
    """
    numbered = [_numbered(o.module, depth) for o in body.operations[start:stop]]
    again = _next_of_parent(numbered)
    found: list[tuple[str, list[_Block]]] = []
    latest: dict[str, int] = {}
    for n, place in enumerate(numbered):
        if place is None:
            continue
        parent, number = place
        latest[parent] = n
        if found and found[-1][0] != parent:
            # A family goes on behind modules of another one while its numbers rise.
            base, members = found[-1]
            following = again[latest[base]]
            if following is not None and int(following) >= int(members[-1].number):
                continue
        if not found or found[-1][0] != parent:
            found.append((parent, [_Block(number, start + n, start + n + 1)]))
            continue
        blocks = found[-1][1]
        last = blocks[-1]
        if last.number == number:
            blocks[-1] = _Block(number, last.start, start + n + 1)
        else:
            blocks[-1] = _Block(last.number, last.start, start + n)
            blocks.append(_Block(number, start + n, start + n + 1))
    return found


def _next_of_parent(
    numbered: Sequence[tuple[str, str] | None],
) -> list[str | None]:
    """For each place, the number of the next one below the same parent."""
    found: list[str | None] = [None] * len(numbered)
    behind: dict[str, str] = {}
    for n in range(len(numbered) - 1, -1, -1):
        place = numbered[n]
        if place is not None:
            parent, number = place
            found[n] = behind.get(parent)
            behind[parent] = number
    return found


def _numbered(path: str, depth: int) -> tuple[str, str] | None:
    """A path up to its number of this depth, and that number."""
    segments = path.split(".")
    places = [k for k, segment in enumerate(segments) if segment.isdecimal()]
    if depth >= len(places):
        return None
    place = places[depth]
    return ".".join(segments[:place]), segments[place]


def _runs(program: _Program, parent: str, blocks: list[_Block]) -> list[Run]:
    """The longest runs among the blocks of a family, from the first on."""
    own, constants = _unshared(program, blocks)
    fragments = [
        fragment_of(
            list(range(block.start, block.stop)),
            program.graph,
            program.dependence,
            own,
            constants,
        )
        for block in blocks
    ]
    for fragment in fragments:
        fragment.key = program_key(fragment, program.dependence, program.types)
    read = _read_elsewhere(program, blocks)

    def joined(first: int, end: int) -> BoundPart | None:
        return _joined(program, fragments[first:end], read)

    found: list[Run] = []
    first = 0
    while first < len(blocks) - 1:
        end = _longest(joined, first, len(blocks))
        keys = [fragment.key for fragment in fragments[first:end]]
        start, stop = _trimmed(keys, first)
        part = joined(start, stop) if stop - start > 1 else None
        if part is not None and _worth(part):
            mine = blocks[start:stop]
            iterations = tuple(
                Iteration(i, f"{parent}.{block.number}" if parent else block.number)
                for i, block in enumerate(mine)
            )
            found.append(Run(mine[0].start, mine[-1].stop, parent, iterations, part))
            first = stop
        else:
            first = max(end - 1, first + 1)
    return found


def _longest(
    joined: Callable[[int, int], BoundPart | None], first: int, count: int
) -> int:
    """Where the longest run from `first` on ends, as far as halving finds it."""
    fits, fails, step = first + 1, count + 1, 2
    while fails - fits > 1:
        end = min(first + step, count) if fails > count else (fits + fails) // 2
        if joined(first, end) is None:
            fails = end
        else:
            fits = end
        step *= 2
    return fits


def _unshared(
    program: _Program, blocks: Sequence[_Block]
) -> tuple[frozenset[str], dict[str, Input]]:
    """Model tensors and constants that at most one block reads.

    The others are handed to all of them as any other value is.
    """
    readers: dict[str, set[int]] = {}
    for k, block in enumerate(blocks):
        for n in range(block.start, block.stop):
            for name in program.dependence.operand_names[n]:
                readers.setdefault(name, set()).add(k)
    single = {name for name, mine in readers.items() if len(mine) == 1}
    return (
        frozenset(single.intersection(program.body.parameters)),
        {each.name: each for each in program.body.constants if each.name in single},
    )


def _read_elsewhere(program: _Program, blocks: Sequence[_Block]) -> frozenset[str]:
    """Values that something outside of the block that makes them reads."""
    block_of = {
        n: k for k, block in enumerate(blocks) for n in range(block.start, block.stop)
    }
    producer = program.dependence.producer
    found = set(program.body.outputs)
    for n, names in enumerate(program.dependence.operand_names):
        mine = block_of.get(n, -1)
        found.update(
            name
            for name in names
            if name in producer and block_of.get(producer[name], -1) != mine
        )
    return frozenset(found)


def _joined(
    program: _Program, given: Sequence[Fragment], read: frozenset[str]
) -> BoundPart | None:
    """Blocks as the iterations of one part; None if they are not alike enough."""
    dependence = program.dependence
    fragments = [replace(fragment) for fragment in given]
    if len({bool(fragment.parameters) for fragment in fragments}) > 1:
        return None
    try:
        share_program(fragments, dependence)
        grouped = group(INSIDE, fragments, dependence, read)
        made = {
            name: Made(INSIDE, i, k)
            for i in range(len(fragments))
            for k, name in enumerate(outputs(grouped, i, dependence))
            if name
        }
        if _read_later(program, fragments, made):
            return None
        origins = Origins(made, {INSIDE: 0}, ())
        roles, inputs = find_roles(INSIDE, grouped, origins, {}, dependence)
    except Mismatch:
        return None
    return bound_part(INSIDE, grouped, roles, inputs, dependence, frozenset())


def _read_later(
    program: _Program, fragments: Sequence[Fragment], made: Mapping[str, Made]
) -> bool:
    """Whether something behind the run reads what is not of its last iteration."""
    last, end = len(fragments) - 1, fragments[-1].numbers[-1]
    return any(
        program.last_reader.get(name, 0) > end
        for name, maker in made.items()
        if maker.iteration < last
    )


def _trimmed(keys: Sequence[ProgramKey], first: int) -> tuple[int, int]:
    """Without modules at either end that no other one of the run is like."""
    count = Counter(keys)
    alike = [k for k, key in enumerate(keys) if count[key] > 1]
    return (first + alike[0], first + alike[-1] + 1) if alike else (first, first)


def _worth(part: BoundPart) -> bool:
    """Whether enough text goes: operations of the instances against the programs'."""
    written = sum(len(body.operations) for body in part.bodies)
    held = sum(len(instance.operations) for instance in part.instances)
    return held - written >= FEWEST_SAVED
