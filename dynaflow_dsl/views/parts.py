"""What each part holds: every operation, where it comes from, and who claimed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TypeAlias

from dynaflow_dsl.bind.model import (
    AFTER,
    BEFORE,
    GAP,
    Binding,
    BoundPart,
    BoundSection,
    Gaps,
)
from dynaflow_dsl.graph.model import Operation, TensorType
from dynaflow_dsl.resolve.model import FirstMatchSelector, Part, Selector
from dynaflow_dsl.resolve.selectors import operands
from dynaflow_dsl.views.claims import Claimed, claimed

ATTACHED = "+"

Types: TypeAlias = Mapping[str, TensorType]


def parts(binding: Binding) -> str:
    """List `before`, each part, the gaps and `after` with their operations.

    Operations are grouped by module, relative to the module that the `each` matched. A
    number says which term of the selector named an operation, where several could; a
    `+` marks those that no selector named and the rule for own operations attached. A
    part whose iterations run different programs lists each program, and one that brings
    weights lists them. The text ends in a newline.
    """
    claims = claimed(binding)
    types = {item.name: item.value.type for item in binding.graph.inputs}
    declared = {part.name: part for part in binding.schedule.parts}
    sections: list[str] = []
    if binding.before is not None:
        sections.append(_outside(BEFORE, binding.before))
    for number, section in enumerate(binding.sections):
        if binding.gaps is not None:
            sections += _between(binding.gaps, number, section)
        for part in section.parts:
            here = declared[part.name]
            sections += (
                _brought(section, part, here, types)
                if part.fetches
                else _inside(section, part, here, claims)
            )
    if binding.after is not None:
        sections.append(_outside(AFTER, binding.after))
    for section in binding.sections:
        if any(part.attached for part in section.parts):
            owner = section.word or "model"
            sections.append(
                f"{ATTACHED} attached: an operation of the {owner} itself, "
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
    return "\n".join([title, *_listing(operations, "", {})])


def _between(gaps: Gaps, number: int, section: BoundSection) -> Iterator[str]:
    """The gaps of a section, program by program."""
    for index, body in enumerate(gaps.part.bodies):
        before = [
            place.iteration
            for place, instance in zip(gaps.places, gaps.part.instances, strict=True)
            if place.section == number and instance.body == index
        ]
        if before:
            where = f"before {section.word} {numbers(before)}".rstrip()
            if not section.word:
                where = "before the parts outside 'each'"
            title = f"{GAP}: {where}, on main, {_count(body.operations)}"
            yield "\n".join([title, *_listing(body.operations, "", {})])


def _brought(
    section: BoundSection, part: BoundPart, declared: Part, types: Types
) -> Iterator[str]:
    """The weights of a part that brings them, by what is the same in iterations."""
    for index, body in enumerate(part.bodies):
        members = [n for n, item in enumerate(part.instances) if item.body == index]
        title = (
            f"{part.name}: {section.word} {numbers(members)}, on "
            f"{declared.streams[0]}, {_plural(len(body.parameters), 'weight')} from "
            "host memory"
        )
        path = section.iterations[body.example].path
        width = max(len(name) - len(path) for name in body.parameters)
        rows = (
            f"    {name[len(path) :]:{width}}  {types[name]}"
            for name in body.parameters
        )
        yield "\n".join([title, *rows])


def _inside(
    section: BoundSection, part: BoundPart, declared: Part, claims: Claimed
) -> Iterator[str]:
    on = ", ".join(dict.fromkeys(declared.streams))
    for index, body in enumerate(part.bodies):
        members = [n for n, item in enumerate(part.instances) if item.body == index]
        where = f"{section.word} {numbers(members)}" if section.word else "once"
        title = f"{part.name}: {where}, on {on}, {_count(body.operations)}"
        path = section.iterations[body.example].path
        terms = claims(part, body.example)
        ordered = _in_order(terms.values(), declared.selector)
        marks = dict.fromkeys(part.attached, ATTACHED)
        legend = []
        if len(ordered) > 1 or _has_choice(declared.selector):
            numbered = {term: str(n) for n, term in enumerate(ordered, 1)}
            marks |= {name: numbered[term] for name, term in terms.items()}
            count = Counter(terms.values())
            legend = [
                f"    {n}   {term}: {_plural(count[term], 'operation')}"
                for term, n in numbered.items()
            ]
        yield "\n".join([title, *legend, *_listing(body.operations, path, marks)])


def _in_order(terms: Iterable[str], selector: Selector) -> list[str]:
    """Terms that named something, as they stand in the selector."""
    text = selector.span.phrase
    return sorted(set(terms), key=lambda term: (text.find(term), term))


def _has_choice(selector: Selector) -> bool:
    """Whether an `or` leaves open which of its sides counts."""
    if isinstance(selector, FirstMatchSelector):
        return True
    return any(map(_has_choice, operands(selector)))


def _count(operations: tuple[Operation, ...]) -> str:
    views = sum(operation.view for operation in operations)
    counted = _plural(len(operations) - views, "operation")
    return f"{counted} and {_plural(views, 'view')}" if views else counted


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listing(
    operations: tuple[Operation, ...], path: str, marks: Mapping[str, str]
) -> Iterator[str]:
    if not operations:
        return
    names = max(len(operation.name) for operation in operations)
    operators = max(len(operation.operator) for operation in operations)
    for module, members in groupby(operations, key=lambda item: item.module):
        yield f"    {_relative(module, path)}"
        for operation in members:
            mark = marks.get(operation.name, "")
            called = f"{operation.name:{names}}  {operation.operator:{operators}}"
            source = operation.source if operation.source is not None else ""
            yield f"    {mark:<3} {called}  {source}".rstrip()


def _relative(module: str, path: str) -> str:
    if path and module == path:
        return "."
    if path and module.startswith(f"{path}."):
        return module[len(path) :]
    return f"root.{module}" if module and path else f".{module}"
