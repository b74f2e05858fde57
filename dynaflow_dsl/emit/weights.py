"""Which tensors of the model each function of a part reads, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.model import AFTER, BEFORE, BoundPart, Iteration
from dynaflow_dsl.emit.layout import Bracket, Expression, call, listed, string
from dynaflow_dsl.plan.names import identifier


@dataclass(frozen=True, slots=True)
class WeightTable:
    """Fields of the record `w` of a part.

    `fields[body]` maps the model tensors of a program to field names. `paths` gives,
    for each field, the path in each iteration, None where its program does not read it.
    """

    fields: tuple[Mapping[str, str], ...]
    paths: Mapping[str, tuple[str | None, ...]]


def tabulate(part: BoundPart, iterations: Sequence[Iteration]) -> WeightTable:
    """Name the fields after the modules that hold the tensors."""
    names: dict[tuple[int, int], str] = {}
    taken: dict[str, str] = {}
    for number, body in enumerate(part.bodies):
        first = next(i for i, inst in enumerate(part.instances) if inst.body == number)
        scope = iterations[first].path if len(iterations) > 1 else ""
        for k, path in enumerate(body.parameters):
            relative = path.removeprefix(f"{scope}.") if scope else path
            names[(number, k)] = _field(relative, taken)
    fields = tuple(
        {path: names[(number, k)] for k, path in enumerate(body.parameters)}
        for number, body in enumerate(part.bodies)
    )
    paths: dict[str, list[str | None]] = {
        name: [None] * len(part.instances) for name in names.values()
    }
    for i, instance in enumerate(part.instances):
        for k, path in enumerate(instance.parameters):
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


def layer_numbers(iterations: Sequence[Iteration]) -> tuple[int, ...] | None:
    """The numbers at the end of the layers' paths, if all have one."""
    ends = [iteration.path.rpartition(".")[2] for iteration in iterations]
    return tuple(map(int, ends)) if all(end.isdigit() for end in ends) else None


def part_entry(
    part: BoundPart,
    functions: Sequence[str],
    table: WeightTable,
    iterations: Sequence[Iteration],
) -> Bracket:
    """The part's line in the module's table of parts."""
    repeated = part.name not in (BEFORE, AFTER)
    numbers = layer_numbers(iterations) if iterations else None
    items: list[Expression] = [
        functions[0] if len(functions) == 1 else listed(functions)
    ]
    if repeated:
        items.append(_layers(numbers, len(part.instances)))
    if len(functions) > 1:
        which = [str(instance.body) for instance in part.instances]
        items.append(Bracket("which=", "(", tuple(which)))
    rows: list[Expression] = []
    for name, paths in table.paths.items():
        rows.append(_row(name, paths, numbers))
    if rows:
        items.append(Bracket("weights=", "{", tuple(rows)))
    return call("Part", items)


def _layers(numbers: tuple[int, ...] | None, count: int) -> Expression:
    if numbers is None or numbers == tuple(range(count)):
        return f"layers=range({count})"
    first = numbers[0]
    if numbers == tuple(range(first, first + count)):
        return f"layers=range({first}, {first + count})"
    return Bracket("layers=", "(", tuple(map(str, numbers)))


def _row(
    name: str, paths: tuple[str | None, ...], numbers: tuple[int, ...] | None
) -> Expression:
    key = f"{string(name)}: "
    template = _template(paths, numbers)
    if template is not None:
        return f"{key}{string(template)}"
    items = [string(path) if path is not None else "None" for path in paths]
    return Bracket(key, "(", tuple(items))


def _template(
    paths: tuple[str | None, ...], numbers: tuple[int, ...] | None
) -> str | None:
    first = paths[0]
    if first is None or any("{" in (path or "") for path in paths):
        return None
    if len(set(paths)) == 1:
        return first
    if numbers is None:
        return None
    segments = first.split(".")
    for k, segment in enumerate(segments):
        if segment == str(numbers[0]):
            template = ".".join((*segments[:k], "{}", *segments[k + 1 :]))
            if all(
                path == template.replace("{}", str(number))
                for path, number in zip(paths, numbers, strict=True)
            ):
                return template
    return None
