"""Which term of a part's selector brought each of its operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from dynaflow_dsl.bind.dependence import analyse
from dynaflow_dsl.bind.model import Binding, BoundPart
from dynaflow_dsl.bind.selectors import Scope, claims, index_modules

# Of a part and an iteration: names of operations, each with a term as it is written.
Claimed: TypeAlias = Callable[[BoundPart, int], Mapping[str, str]]


def claimed(binding: Binding) -> Claimed:
    """A function that says it of any part and iteration.

    Attached operations and views are left out: no selector names them.
    """
    dependence = analyse(binding.graph)
    modules = index_modules(binding.graph.modules, dependence)
    # Of each part: those of its section, and the section's iterations.
    around = {
        part.name: (
            {other.name: other for other in section.parts},
            tuple(iteration.path for iteration in bound.iterations),
        )
        for section, bound in zip(
            binding.schedule.sections, binding.sections, strict=True
        )
        for part in section.parts
    }

    def of(part: BoundPart, iteration: int) -> Mapping[str, str]:
        parts, paths = around[part.name]
        numbers = {
            dependence.number[name]
            for name in part.instances[iteration].operations
            if name not in part.attached
            and not dependence.operations[dependence.number[name]].view
        }
        # Own operations are not in 'rest', and what it gave this part is known now.
        rest = numbers - modules.at.get(paths[iteration], frozenset())
        scope = Scope(modules, paths, iteration, parts, frozenset(rest))
        return {
            dependence.operations[number].name: term.span.phrase
            for number, term in claims(parts[part.name].selector, scope).items()
            if number in numbers
        }

    return of
