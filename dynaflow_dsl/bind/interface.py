"""Parts with their programs and instances.

Equal layers share one program. Position k of the inputs means the same thing in every
instance, so one call text serves all iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.fragments import Fragment, Fragments, ProgramKey, touched
from dynaflow_dsl.bind.model import (
    GAP,
    Body,
    BoundPart,
    Gaps,
    Instance,
    Outer,
    Place,
    Produced,
    Role,
)
from dynaflow_dsl.bind.ownership import AFTER_OWNER, Owner
from dynaflow_dsl.bind.programs import Grouped, Mismatch, group, leaving, outputs
from dynaflow_dsl.bind.programs import Place as ResultPlace
from dynaflow_dsl.bind.repeated import share_program
from dynaflow_dsl.bind.roles import Made, Origins, carried, find_roles
from dynaflow_dsl.graph.model import Graph, Operation

READ_AFTER = "what the first makes is read after the last"
RETURNED = "the model returns what the first makes"
READ_LATER = "what the first makes is read after the second has made it anew"


def bind_parts(
    orders: Sequence[Sequence[str]],
    counts: Sequence[int],
    places: Sequence[Place],
    fragments: Fragments,
    dependence: Dependence,
    attached: frozenset[str],
) -> tuple[list[list[BoundPart]], Gaps | None, Origins]:
    """Programs, instances and roles of the parts of each section, and the gaps.

    `orders` and `counts` are the parts and the number of iterations of each section,
    `places` those of the gaps. Raises Mismatch when two iterations are connected
    differently.
    """
    home = {name: s for s, order in enumerate(orders) for name in order}
    grouped: dict[str, Grouped] = {}
    for name, section in home.items():
        mine = [fragments.by_owner[Owner(name, i)] for i in range(counts[section])]
        share_program(mine, dependence)
        grouped[name] = group(name, mine, dependence, fragments.read_outside)
    gaps = [fragments.by_owner[Owner(GAP, n)] for n in range(len(places))]
    between = _group_gaps(gaps, dependence, fragments.read_outside)
    made: dict[str, Made] = {}
    for name, instances in (*grouped.items(), (GAP, between)):
        for i in range(len(instances.fragments)):
            for output, value in enumerate(outputs(instances, i, dependence)):
                made[value] = Made(name, i, output)
    made.pop("", None)
    origins = Origins(made, home, places)
    _check_readers(grouped, gaps, counts, origins)
    initials: dict[tuple[str, int], str] = {}
    found = {
        name: find_roles(name, grouped[name], origins, initials, dependence)
        # What a carried value starts from is found where there is least to choose.
        for name in sorted(grouped, key=lambda n: carried(n, grouped[n], origins))
    }
    parts = {
        name: bound_part(name, instances, *found[name], dependence, attached)
        for name, instances in grouped.items()
    }
    bound_gaps = None
    if gaps:
        inputs = [tuple(fragment.inputs) for fragment in gaps]
        part = bound_part(GAP, between, [], inputs, dependence, frozenset())
        bound_gaps = Gaps(part, tuple(places))
    return [[parts[name] for name in order] for order in orders], bound_gaps, origins


def _group_gaps(
    gaps: list[Fragment], dependence: Dependence, read_outside: frozenset[str]
) -> Grouped:
    """Gaps by program. Unlike those of a part, they need not give the same things."""
    bodies: dict[ProgramKey, int] = {}
    body_of = [bodies.setdefault(fragment.key, len(bodies)) for fragment in gaps]
    read: list[set[ResultPlace]] = [set() for _ in bodies]
    for fragment, body in zip(gaps, body_of, strict=True):
        for place, name in leaving(fragment, dependence):
            if name in read_outside:
                read[body].add(place)
    return Grouped(gaps, body_of, [sorted(places) for places in read])


def _check_readers(
    grouped: dict[str, Grouped],
    gaps: Sequence[Fragment],
    counts: Sequence[int],
    origins: Origins,
) -> None:
    """A result is kept until the next iteration has made its own, else a Mismatch."""
    readers: list[tuple[Place, Iterable[str], bool]] = [
        (place, fragment.inputs, True)
        for place, fragment in zip(origins.gaps, gaps, strict=True)
    ]
    readers += [
        (Place(origins.home[name], i), fragment.inputs, False)
        for name, instances in grouped.items()
        for i, fragment in enumerate(instances.fragments)
    ]
    for place, names, gap in readers:
        for name in names:
            made = origins.made.get(name)
            if made is None or made.part == GAP:
                continue
            section = origins.home[made.part]
            last = counts[section] - 1
            if section < place.section and made.iteration != last:
                pair = (made.iteration, last)
                raise Mismatch(made.part, pair, READ_AFTER, name)
            if (
                gap
                and section == place.section
                and made.iteration < place.iteration - 1
            ):
                pair = (made.iteration, place.iteration - 1)
                raise Mismatch(made.part, pair, READ_LATER, name)


def check_results(
    results: Sequence[str], origins: Origins, counts: Sequence[int]
) -> None:
    """What the model returns is kept of the last iteration only; else a Mismatch."""
    for value in results:
        made = origins.made.get(value)
        if made is not None and made.part != GAP:
            last = counts[origins.home[made.part]] - 1
            if made.iteration != last:
                raise Mismatch(made.part, (made.iteration, last), RETURNED)


def bound_part(
    name: str,
    grouped: Grouped,
    roles: list[Role],
    inputs: list[tuple[str, ...]],
    dependence: Dependence,
    attached: frozenset[str],
) -> BoundPart:
    """Programs and instances of one part; `inputs` are what each instance reads."""
    instances = []
    for i, fragment in enumerate(grouped.fragments):
        instances.append(
            Instance(
                grouped.body_of[i],
                tuple(dependence.operations[n].name for n in fragment.numbers),
                inputs[i],
                tuple(fragment.parameters),
                tuple(outputs(grouped, i, dependence)),
                touched(fragment.numbers, dependence),
            )
        )
    bodies = []
    for body in range(len(grouped.outputs)):
        mine = [i for i, number in enumerate(grouped.body_of) if number == body]
        # One that reads a value at two places would have two inputs of one name.
        plain = (i for i in mine if len(set(inputs[i])) == len(inputs[i]))
        first = next(plain, mine[0])
        example = instances[first]
        operations, given = _with_all_outputs(grouped, body, first, dependence)
        constants = tuple(grouped.fragments[first].constants)
        bodies.append(
            Body(
                operations,
                example.inputs,
                example.parameters,
                given,
                constants,
                first,
            )
        )
    held = {o for instance in instances for o in instance.operations}
    return BoundPart(
        name, tuple(bodies), tuple(instances), tuple(roles), frozenset(held & attached)
    )


def _with_all_outputs(
    grouped: Grouped, body: int, example: int, dependence: Dependence
) -> tuple[tuple[Operation, ...], tuple[str, ...]]:
    """A program and its outputs in the words of one of its instances.

    A result that is read in other iterations only has their name.
    """
    others = [
        fragment
        for fragment, mine in zip(grouped.fragments, grouped.body_of, strict=True)
        if mine == body
    ]
    members = [grouped.fragments[example], *others]
    operations = [dependence.operations[n] for n in members[0].numbers]
    given = []
    for step, k in grouped.outputs[body]:
        named = (dependence.operations[m.numbers[step]].results[k] for m in members)
        value = next(value for value in named if value is not None)
        results = operations[step].results
        if results[k] is None:
            results = (*results[:k], value, *results[k + 1 :])
            operations[step] = replace(operations[step], results=results)
        given.append(value.name)
    return tuple(operations), tuple(given)


def bind_outside(
    owner: Owner,
    fragments: Fragments,
    origins: Origins,
    counts: Sequence[int],
    graph: Graph,
    dependence: Dependence,
) -> BoundPart | None:
    """`before` or `after` as a part of one instance; None when it is empty."""
    fragment = fragments.by_owner.get(owner)
    if fragment is None:
        return None
    roles: list[Role] = []
    for name in fragment.inputs:
        made_by = origins.made.get(name)
        if made_by is None:
            roles.append(Outer((name,)))
            continue
        if made_by.part != GAP:
            last = counts[origins.home[made_by.part]] - 1
            if made_by.iteration != last:
                pair = (made_by.iteration, last)
                raise Mismatch(made_by.part, pair, READ_AFTER, name)
        roles.append(Produced(made_by.part, made_by.output))
    wanted = set(graph.outputs) if owner == AFTER_OWNER else fragments.read_outside
    made = tuple(
        dict.fromkeys(
            value.name
            for number in fragment.numbers
            for value in dependence.operations[number].results
            if value is not None
            and value.name in wanted
            and fragments.maker.get(value.name) == owner
        )
    )
    operations = tuple(dependence.operations[number] for number in fragment.numbers)
    inputs, parameters = tuple(fragment.inputs), tuple(fragment.parameters)
    names = tuple(operation.name for operation in operations)
    return BoundPart(
        owner.part,
        (Body(operations, inputs, parameters, made, tuple(fragment.constants)),),
        (
            Instance(
                0,
                names,
                inputs,
                parameters,
                made,
                touched(fragment.numbers, dependence),
            ),
        ),
        tuple(roles),
        frozenset(),
    )
