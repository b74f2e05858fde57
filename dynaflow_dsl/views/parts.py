"""What each part holds: every operation, where it comes from, and who claimed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from dynaflow_dsl.bind.model import AFTER, BEFORE, Binding, BoundPart
from dynaflow_dsl.graph.model import Operation

ATTACHED = "+"


def parts(binding: Binding) -> str:
    """List `before`, each part and `after` with their operations.

    Operations are grouped by module, relative to the module that the `each` matched; a
    `+` marks those that no selector named and the rule for own operations attached. A
    part whose iterations run different programs lists each program. The text ends in
    a newline.
    """
    streams = {part.name: part.streams for part in binding.schedule.parts}
    sections: list[str] = []
    if binding.before is not None:
        sections.append(_outside(BEFORE, binding.before))
    for part in binding.parts:
        sections += _inside(binding, part, streams[part.name])
    if binding.after is not None:
        sections.append(_outside(AFTER, binding.after))
    marked = any(part.attached for part in binding.parts)
    if marked:
        scope = binding.schedule.sections[0].each.name
        sections.append(
            f"{ATTACHED} attached: an operation of the {scope} itself, "
            "in the part that reads it first"
        )
    return "\n\n".join(sections) + "\n"


def numbers(values: Iterable[int]) -> str:
    """Numbers in words, runs of neighbours joined: `0 to 3, 5`."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in runs)


def _outside(name: str, part: BoundPart) -> str:
    operations = part.bodies[0].operations
    title = f"{name}: once on the whole batch, on main, {_count(operations)}"
    return "\n".join([title, *_listing(operations, "", part.attached)])


def _inside(
    binding: Binding, part: BoundPart, streams: tuple[str, ...]
) -> Iterator[str]:
    scope = binding.schedule.sections[0].each.name
    on = ", ".join(dict.fromkeys(streams))
    for index, body in enumerate(part.bodies):
        members = [n for n, item in enumerate(part.instances) if item.body == index]
        title = f"{part.name}: {scope} {numbers(members)}, on {on}, "
        title += _count(body.operations)
        path = binding.iterations[members[0]].path
        listing = _listing(body.operations, path, part.attached)
        yield "\n".join([title, *listing])


def _count(operations: tuple[Operation, ...]) -> str:
    views = sum(operation.view for operation in operations)
    counted = _plural(len(operations) - views, "operation")
    return f"{counted} and {_plural(views, 'view')}" if views else counted


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listing(
    operations: tuple[Operation, ...], path: str, attached: frozenset[str]
) -> Iterator[str]:
    if not operations:
        return
    names = max(len(operation.name) for operation in operations)
    operators = max(len(operation.operator) for operation in operations)
    for module, members in groupby(operations, key=lambda item: item.module):
        yield f"    {_relative(module, path)}"
        for operation in members:
            mark = ATTACHED if operation.name in attached else " "
            called = f"{operation.name:{names}}  {operation.operator:{operators}}"
            source = operation.source if operation.source is not None else ""
            yield f"    {mark}   {called}  {source}".rstrip()


def _relative(module: str, path: str) -> str:
    if path and module == path:
        return "."
    if path and module.startswith(f"{path}."):
        return module[len(path) :]
    return f"root.{module}" if module and path else f".{module}"
