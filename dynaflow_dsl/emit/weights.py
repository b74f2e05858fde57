"""The entries of a module's table of parts: functions, layers and weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.model import AFTER, BEFORE, BoundPart, Iteration
from dynaflow_dsl.emit.layout import Bracket, Expression, call, listed, string
from dynaflow_dsl.emit.writing import into_entry
from dynaflow_dsl.plan.tensor_names import WeightTable


@dataclass(frozen=True, slots=True)
class StandIn:
    """A kernel's name, and the attribute of the part that it stands in for."""

    kernel: str
    instead_of: str
    trusted: bool


def layer_numbers(iterations: Sequence[Iteration]) -> tuple[int, ...] | None:
    """The numbers at the end of the layers' paths, if all have one."""
    ends = [iteration.path.rpartition(".")[2] for iteration in iterations]
    return tuple(map(int, ends)) if all(end.isdigit() for end in ends) else None


def part_entry(
    part: BoundPart,
    functions: Sequence[str],
    table: WeightTable,
    iterations: Sequence[Iteration],
    inside: Sequence[Expression] = (),
    kernel: StandIn | None = None,
    into: Mapping[str, tuple[Sequence[str], Sequence[int]]] | None = None,
) -> Bracket:
    """The part's line in the module's table of parts.

    `inside` are rows of weights of modules in loops, `kernel` is what the part calls,
    `into` what writes some of its results into tensors, and which ones.
    """
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
    rows = [*_rows(table, numbers), *inside]
    if rows:
        items.append(Bracket("weights=", "{", tuple(rows)))
    if into:
        items.append(into_entry(into))
    if kernel is not None:
        items.append(f"kernel={string(kernel.kernel)}")
        items.append(f"instead_of={string(kernel.instead_of)}")
        if kernel.trusted:
            items.append("trusted=True")
    return call("Part", items)


def fetch_entry(
    part: BoundPart, table: WeightTable, iterations: Sequence[Iteration], buffers: int
) -> Bracket:
    """The line of a part that brings weights."""
    numbers = layer_numbers(iterations)
    layers = _layers(numbers, len(part.instances))
    return call("Fetch", [layers, _weights(table, numbers), f"buffers={buffers}"])


def _weights(table: WeightTable, numbers: tuple[int, ...] | None) -> Bracket:
    return Bracket("weights=", "{", tuple(_rows(table, numbers)))


def _rows(table: WeightTable, numbers: tuple[int, ...] | None) -> Iterator[Expression]:
    for name, paths in table.paths.items():
        yield weight_row(name, template(paths, numbers) or paths)


def _layers(numbers: tuple[int, ...] | None, count: int) -> Expression:
    if numbers is None or numbers == tuple(range(count)):
        return f"layers=range({count})"
    first = numbers[0]
    if numbers == tuple(range(first, first + count)):
        return f"layers=range({first}, {first + count})"
    return Bracket("layers=", "(", tuple(map(str, numbers)))


def weight_row(name: str, paths: str | tuple[str | None, ...]) -> Expression:
    """A weight with a template of its path, or with a path for each iteration."""
    key = f"{string(name)}: "
    if isinstance(paths, str):
        return f"{key}{string(paths)}"
    items = [string(path) if path is not None else "None" for path in paths]
    return Bracket(key, "(", tuple(items))


def template(
    paths: tuple[str | None, ...], numbers: tuple[int, ...] | None
) -> str | None:
    """One path for all of these numbers, with `{}` where the number stands."""
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
            found = ".".join((*segments[:k], "{}", *segments[k + 1 :]))
            if all(
                path == found.replace("{}", str(number))
                for path, number in zip(paths, numbers, strict=True)
            ):
                return found
    return None
