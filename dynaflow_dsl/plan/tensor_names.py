"""What the function of a part calls its tensors, and kernels that go by these names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.model import Binding, Body, BoundKernel, BoundPart, Iteration
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.plan.model import (
    Call,
    Choice,
    InputOperand,
    Loop,
    Operand,
    PieceOf,
    Program,
    Variable,
)
from dynaflow_dsl.plan.names import RESERVED, free_name, identifier
from dynaflow_dsl.resolve.model import Part


@dataclass(frozen=True, slots=True)
class WeightTable:
    """Fields of the record `w` of a part.

    `fields[body]` maps the model tensors of a program to field names. `paths` gives,
    for each field, the path in each iteration, None where its program does not read it.
    """

    fields: tuple[Mapping[str, str], ...]
    paths: Mapping[str, tuple[str | None, ...]]


def tabulate(
    part: BoundPart,
    iterations: Sequence[Iteration],
    elsewhere: Sequence[Collection[str]] = (),
    reserved: Sequence[str] = (),
) -> WeightTable:
    """Name the fields after the modules that hold the tensors.

    `elsewhere` are the tensors of each program that need no field here, `reserved`
    names that no field may have.
    """
    names: dict[tuple[int, int], str] = {}
    taken: dict[str, str] = dict.fromkeys(reserved, "")
    for number, body in enumerate(part.bodies):
        scope = iterations[body.example].path if len(iterations) > 1 else ""
        left_out = elsewhere[number] if elsewhere else ()
        for k, path in enumerate(body.parameters):
            if path in left_out:
                continue
            relative = path.removeprefix(f"{scope}.") if scope else path
            names[(number, k)] = _field(relative, taken)
    fields = tuple(
        {
            path: names[(number, k)]
            for k, path in enumerate(body.parameters)
            if (number, k) in names
        }
        for number, body in enumerate(part.bodies)
    )
    paths: dict[str, list[str | None]] = {
        name: [None] * len(part.instances) for name in names.values()
    }
    for i, instance in enumerate(part.instances):
        for k, path in enumerate(instance.parameters):
            if (instance.body, k) in names:
                paths[names[(instance.body, k)]][i] = path
    return WeightTable(fields, {name: tuple(row) for name, row in paths.items()})


def _field(relative: str, taken: dict[str, str]) -> str:
    """The shortest end of the path that names it alone, without a last `weight`."""
    segments = relative.split(".")
    if len(segments) > 1 and segments[-1] == "weight":
        segments = segments[:-1]
    for length in range(1 if segments[-1] != "bias" else 2, len(segments) + 1):
        name = identifier("_".join(segments[-length:]))
        if taken.setdefault(name, relative) == relative:
            return name
    name = identifier(relative.replace(".", "_"))
    number = 2
    while taken.setdefault(name, relative) != relative:
        name, number = f"{identifier(relative)}_{number}", number + 1
    return name


def iterations_of(part: BoundPart, binding: Binding) -> tuple[Iteration, ...]:
    """The modules that a part runs for; none for what lies outside the sections."""
    for section in binding.sections:
        if any(one is part for one in section.parts):
            return section.iterations
    return ()


def input_names(
    part: BoundPart, body: int, binding: Binding, sequential: Program
) -> tuple[str, ...]:
    """Parameters of a function, beside `w`: named as in the sequential program."""
    taken = {*RESERVED, *(name for name, _, _ in binding.graph.dimensions)}
    wanted = _names_in_call(part, body, sequential)
    return tuple(free_name(identifier(name), taken) for name in wanted)


def _names_in_call(part: BoundPart, body: int, sequential: Program) -> list[str]:
    named: list[str] = []
    for segment in sequential.segments:
        first = segment.start if isinstance(segment, Loop) else 0
        for block in segment.blocks:
            for statement in block.statements:
                if isinstance(statement, Call) and statement.part == part.name:
                    names = [_operand_name(o) for o in statement.operands]
                    number = statement.layer.at(first)
                    if part.roles or part.instances[number].body == body:
                        return names
                    named = named or names
    assert named, f"{part.name} is never called"
    return named


def _operand_name(operand: Operand) -> str:
    match operand:
        case Variable(name) | InputOperand(name) | PieceOf(name):
            return name
        case Choice(options):
            return options[0].name


def trusted_faults(binding: Binding, sequential: Program) -> Iterator[Diagnostic]:
    """DFS401: a trusted kernel takes other tensors than its part, or writes others."""
    declared = {part.name: part for part in binding.schedule.parts}
    for bound in binding.kernels:
        if not bound.via.kernel.trusted:
            continue
        part = next(each for each in binding.parts if each.name == bound.part)
        table = tabulate(part, iterations_of(part, binding))
        for number, body in enumerate(part.bodies):
            inputs = input_names(part, number, binding, sequential)
            named = by_name(body, inputs, table.fields[number])
            yield from _misnamed(declared[bound.part], bound, body, named)


def by_name(
    body: Body, inputs: Sequence[str], weights: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Each tensor that a program is given, after the name that a kernel knows it by.

    `inputs` are its function's parameters, `weights` maps model tensors to fields.
    """
    return [
        *zip(inputs, body.inputs, strict=True),
        *((field, value) for value, field in weights.items()),
    ]


def _misnamed(
    part: Part, bound: BoundKernel, body: Body, known: Sequence[tuple[str, str]]
) -> Iterator[Diagnostic]:
    assert part.via is not None
    named = dict(known)
    missing = [name for name in bound.tensors if name not in named]
    left = [name for name in named if name not in bound.tensors]
    if missing or left or len(named) < len(known):
        takes, has = ", ".join(bound.tensors), ", ".join(named)
        yield Diagnostic(
            "DFS401",
            f"trusted kernel '{bound.via.kernel.name}' does not take the tensors of "
            f"part {part.name}",
            Label(part.via.span, "bound by name"),
            notes=(f"the kernel takes: {takes}", f"the part has: {has}"),
            helps=("name the parameters like the part's tensors",),
        )
        return
    written = {name for operation in body.operations for name in operation.writes}
    for name in bound.mutates:
        if named[name] not in written:
            yield Diagnostic(
                "DFS401",
                f"trusted kernel '{bound.via.kernel.name}' writes '{name}', and part "
                f"{part.name} does not",
                Label(part.via.span, "others would read what it changed"),
                helps=("return a new tensor instead",),
            )
