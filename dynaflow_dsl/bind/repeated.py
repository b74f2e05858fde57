"""A first iteration that reads one value where the others read two.

What layers carry may be read beside the value that it starts from: then the first layer
reads that value twice, and its fragment has one input for both. It still runs the
program of the others, with one argument given twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.bind.fragments import Fragment
from dynaflow_dsl.graph.model import Argument, Reference


def share_program(fragments: Sequence[Fragment], dependence: Dependence) -> None:
    """Give the first fragment of a part the program of a later one with more inputs,
    where it is the same but for inputs that are one value in the first."""
    first, *others = fragments
    for other in {fragment.key: fragment for fragment in reversed(others)}.values():
        match = _Match(other, first, dependence)
        if len(other.inputs) > len(first.inputs) and match.holds():
            first.inputs = [match.inputs[name] for name in other.inputs]
            first.key = other.key
            return


@dataclass(slots=True)
class _Match:
    """A program, a fragment, and what stands in the fragment for each of its names."""

    program: Fragment
    fragment: Fragment
    dependence: Dependence
    inputs: dict[str, str] = field(default_factory=dict)
    local: dict[str, str] = field(default_factory=dict)

    def holds(self) -> bool:
        """Whether the fragment runs the program, operation by operation."""
        theirs, mine = self.program, self.fragment
        if len(theirs.numbers) != len(mine.numbers) or len(theirs.parameters) != len(
            mine.parameters
        ):
            return False
        self.local = dict(zip(theirs.parameters, mine.parameters, strict=True))
        if not all(self._alike(*pair) for pair in self.local.items()):
            return False
        for left, right in zip(theirs.numbers, mine.numbers, strict=True):
            if not self._step(left, right):
                return False
        return self.inputs.keys() == set(theirs.inputs)

    def _step(self, left: int, right: int) -> bool:
        one, other = (self.dependence.operations[n] for n in (left, right))
        if one.operator != other.operator or len(one.results) != len(other.results):
            return False
        if not self._same(one.arguments, other.arguments):
            return False
        names = tuple(name for name, _ in one.keywords)
        if names != tuple(name for name, _ in other.keywords):
            return False
        values = (tuple(v for _, v in o.keywords) for o in (one, other))
        if not self._same(*values):
            return False
        for theirs, mine in zip(one.results, other.results, strict=True):
            if theirs is not None and mine is not None:
                self.local[theirs.name] = mine.name
        return True

    def _same(self, left: Argument, right: Argument) -> bool:
        match left, right:
            case Reference(name), Reference(other):
                return self._stands_for(name, other)
            case tuple(), tuple():
                return len(left) == len(right) and all(
                    self._same(*pair) for pair in zip(left, right, strict=True)
                )
            case _:
                return type(left) is type(right) and repr(left) == repr(right)

    def _stands_for(self, name: str, other: str) -> bool:
        if name in self.program.inputs:
            known = self.inputs.setdefault(name, other)
            return known == other and self._alike(name, other)
        if name in self.local:
            return self.local[name] == other
        theirs = {item.name: item for item in self.program.constants}
        mine = {item.name: item for item in self.fragment.constants}
        return (
            name in theirs
            and other in mine
            and theirs[name].value.type == mine[other].value.type
            and repr(theirs[name].data) == repr(mine[other].data)
        )

    def _alike(self, name: str, other: str) -> bool:
        values = self.dependence.values
        return values[name].type == values[other].type
