"""The loops of a part's programs: where their weights are, and their table rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.inside import Run, find_runs
from dynaflow_dsl.bind.model import BoundPart, Iteration
from dynaflow_dsl.emit.layout import Bracket, Expression, call, string
from dynaflow_dsl.emit.weights import layer_numbers, template, weight_row
from dynaflow_dsl.graph.model import Value
from dynaflow_dsl.graph.operands import read_values
from dynaflow_dsl.plan.names import free_name, identifier
from dynaflow_dsl.plan.tensor_names import WeightTable, tabulate


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run and where a function's record `w` has its weights.

    `field` holds one record for each module, with the fields of `table`; it is empty
    where no module has weights.
    """

    run: Run
    field: str
    table: WeightTable


@dataclass(frozen=True, slots=True)
class PartTable:
    """What the functions of a part read of the model: by field, and in loops.

    `runs[body]` are those of a program.
    """

    weights: WeightTable
    runs: tuple[tuple[RecordedRun, ...], ...]


def plain_table(part: BoundPart, iterations: Sequence[Iteration]) -> PartTable:
    """All weights by field: a kernel knows tensors by these, and has no loops."""
    return PartTable(tabulate(part, iterations), ((),) * len(part.bodies))


def table_with_loops(
    part: BoundPart, iterations: Sequence[Iteration], values: Mapping[str, Value]
) -> PartTable:
    """Look for runs in each program of a part; `values` are all those of its graph."""
    runs = [find_runs(body, values) for body in part.bodies]
    fields = _run_fields(runs)
    recorded = tuple(
        tuple(
            RecordedRun(run, field, tabulate(run.part, run.iterations))
            for run, field in zip(mine, names, strict=True)
        )
        for mine, names in zip(runs, fields, strict=True)
    )
    elsewhere = [_own_alone(part, number, mine) for number, mine in enumerate(runs)]
    reserved = [field for names in fields for field in names if field]
    return PartTable(tabulate(part, iterations, elsewhere, reserved), recorded)


def _run_fields(runs: Sequence[Sequence[Run]]) -> list[list[str]]:
    """The last name of each run's parent, told apart within a program."""
    fields = []
    for mine in runs:
        taken: set[str] = set()
        fields.append(
            [
                free_name(identifier(run.parent.rpartition(".")[2] or "modules"), taken)
                if run.own
                else ""
                for run in mine
            ]
        )
    return fields


def _own_alone(part: BoundPart, number: int, runs: Sequence[Run]) -> frozenset[str]:
    """Tensors of the model that a program reads in one loop and nowhere else."""
    operations = part.bodies[number].operations
    inside = {n for run in runs for n in range(run.start, run.stop)}
    read = {
        name
        for n, operation in enumerate(operations)
        if n not in inside
        for name in read_values(operation)
    }
    for run in runs:
        for instance in run.part.instances:
            read.update(instance.inputs)
    owners = [run.own for run in runs]
    return frozenset(
        name
        for own in owners
        for name in own
        if name not in read and sum(name in other for other in owners) == 1
    )


def module_rows(
    part: BoundPart, table: PartTable, iterations: Sequence[Iteration]
) -> list[Expression]:
    """The rows of a part's table that hold `Modules`, by field."""
    numbers = layer_numbers(iterations) if iterations else None
    fields = dict.fromkeys(
        one.field for mine in table.runs for one in mine if one.field
    )
    rows: list[Expression] = []
    for field in fields:
        given: list[_Weights | None] = []
        for instance in part.instances:
            one = next((o for o in table.runs[instance.body] if o.field == field), None)
            body = part.bodies[instance.body]
            named = dict(zip(body.parameters, instance.parameters, strict=True))
            given.append(None if one is None else _weights(one, named))
        rows.append(_keyed(f"{string(field)}: ", given, numbers))
    return rows


@dataclass(frozen=True, slots=True)
class _Weights:
    """Those of one run in one iteration: templates, or a path for each module."""

    numbers: tuple[int, ...]
    rows: tuple[tuple[str, str | tuple[str | None, ...]], ...]


def _weights(one: RecordedRun, named: Mapping[str, str]) -> _Weights:
    numbers = layer_numbers(one.run.iterations)
    assert numbers is not None
    rows = []
    for name, listed in one.table.paths.items():
        paths = tuple(path and named[path] for path in listed)
        rows.append((name, template(paths, numbers) or paths))
    return _Weights(numbers, tuple(rows))


def _keyed(
    key: str, given: Sequence[_Weights | None], numbers: tuple[int, ...] | None
) -> Expression:
    alike = _in_all_layers(given, numbers)
    if alike is not None:
        made = _modules(alike)
        return Bracket(f"{key}{made.head}", made.opening, made.items)
    items = [_modules(one) if one is not None else "None" for one in given]
    return Bracket(key, "(", tuple(items))


def _in_all_layers(
    given: Sequence[_Weights | None], numbers: tuple[int, ...] | None
) -> _Weights | None:
    """The weights of all iterations at once, where the paths say which are which."""
    first, *others = given
    if first is None or not others:
        return first
    if numbers is None or any(
        one is None or one.numbers != first.numbers for one in others
    ):
        return None
    rows = []
    for k, (name, _) in enumerate(first.rows):
        listed = [each.rows[k][1] for each in given if each is not None]
        found = _with_layer(listed, numbers)
        if found is None:
            return None
        rows.append((name, found))
    return _Weights(first.numbers, tuple(rows))


def _with_layer(
    templates: Sequence[str | tuple[str | None, ...]], numbers: tuple[int, ...]
) -> str | None:
    """A template with a place for the layer's number before that for the module's."""
    first = templates[0]
    if not isinstance(first, str) or "{}" not in first:
        return None
    before, _, behind = first.partition("{}")
    segments = before.split(".")
    for k, segment in enumerate(segments):
        if segment != str(numbers[0]):
            continue
        for_layer = ".".join((*segments[:k], "{}", *segments[k + 1 :]))
        expected = [f"{for_layer.replace('{}', str(n))}{{}}{behind}" for n in numbers]
        if expected == list(templates):
            return f"{for_layer}{{}}{behind}"
    return None


def _modules(weights: _Weights) -> Bracket:
    numbers = weights.numbers
    spread: Expression = Bracket("", "(", tuple(map(str, numbers)))
    first, count = numbers[0], len(numbers)
    if numbers == tuple(range(first, first + count)):
        spread = f"range({first}, {first + count})" if first else f"range({count})"
    rows = [weight_row(name, listed) for name, listed in weights.rows]
    return call("Modules", [spread, Bracket("", "{", tuple(rows))])
