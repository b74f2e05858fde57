"""Parts with their programs and instances.

Equal layers share one program. Position k of the inputs means the same thing in every
instance, so one call text serves all iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.fragments import Fragments, touched
from dynaflow_dsl.bind.model import Body, BoundPart, Instance, Outer, Produced, Role
from dynaflow_dsl.bind.ownership import AFTER_OWNER, Owner
from dynaflow_dsl.bind.programs import Grouped, Mismatch, group, outputs
from dynaflow_dsl.bind.roles import Origin, carried, find_roles
from dynaflow_dsl.graph.model import Graph, Operation

READ_AFTER = "what the first makes is read after the last"


def bind_parts(
    names: Sequence[str],
    iterations: int,
    fragments: Fragments,
    dependence: Dependence,
    attached: frozenset[str],
) -> tuple[list[BoundPart], dict[str, tuple[str, int, int]]]:
    """Programs, instances and roles of all parts of the `each`.

    Also says, for each value that leaves a part: (part, iteration, output). Raises
    Mismatch when two iterations are connected differently.
    """
    grouped: dict[str, Grouped] = {}
    for name in names:
        mine = [fragments.by_owner[Owner(name, i)] for i in range(iterations)]
        grouped[name] = group(name, mine, dependence, fragments.read_outside)
    origin: dict[str, tuple[str, int, int]] = {}
    for name, instances in grouped.items():
        for i in range(iterations):
            for output, value in enumerate(outputs(instances, i, dependence)):
                origin[value] = (name, i, output)
    initials: dict[tuple[str, int], str] = {}
    found = {
        name: find_roles(name, grouped[name], origin, initials, dependence)
        # What a carried value starts from is found where there is least to choose.
        for name in sorted(grouped, key=lambda name: carried(grouped[name], origin))
    }
    parts = [
        _bound(name, instances, *found[name], dependence, attached)
        for name, instances in grouped.items()
    ]
    return parts, origin


def check_results(results: Sequence[str], origin: Origin, last: int) -> None:
    """What the model returns is kept of the last iteration only; else a Mismatch."""
    for value in results:
        if value in origin and origin[value][1] != last:
            part, iteration, _ = origin[value]
            raise Mismatch(part, (iteration, last), READ_AFTER)


def _bound(
    name: str,
    grouped: Grouped,
    roles: list[Role],
    inputs: list[tuple[str, ...]],
    dependence: Dependence,
    attached: frozenset[str],
) -> BoundPart:
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
        first = grouped.body_of.index(body)
        example = instances[first]
        operations, given = _with_all_outputs(grouped, body, dependence)
        constants = tuple(grouped.fragments[first].constants)
        bodies.append(
            Body(operations, example.inputs, example.parameters, given, constants)
        )
    mine = {o for instance in instances for o in instance.operations}
    return BoundPart(
        name, tuple(bodies), tuple(instances), tuple(roles), frozenset(mine & attached)
    )


def _with_all_outputs(
    grouped: Grouped, body: int, dependence: Dependence
) -> tuple[tuple[Operation, ...], tuple[str, ...]]:
    """A program and its outputs in the words of its first instance.

    A result that is read in other iterations only has their name.
    """
    members = [
        fragment
        for fragment, mine in zip(grouped.fragments, grouped.body_of, strict=True)
        if mine == body
    ]
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
    origin: Origin,
    last: int,
    graph: Graph,
    dependence: Dependence,
) -> BoundPart | None:
    """`before` or `after` as a part of one instance; None when it is empty."""
    fragment = fragments.by_owner.get(owner)
    if fragment is None:
        return None
    roles: list[Role] = []
    for name in fragment.inputs:
        made_by = origin.get(name)
        if made_by is None:
            roles.append(Outer((name,)))
        elif made_by[1] != last:
            raise Mismatch(made_by[0], (made_by[1], last), READ_AFTER)
        else:
            roles.append(Produced(made_by[0], made_by[2]))
    results = set(graph.outputs) if owner == AFTER_OWNER else fragments.read_outside
    made = tuple(
        dict.fromkeys(
            value.name
            for number in fragment.numbers
            for value in dependence.operations[number].results
            if value is not None
            and value.name in results
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
