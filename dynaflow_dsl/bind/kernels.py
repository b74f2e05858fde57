"""Parts that run through kernels: does a part do what the kernel's reference does?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from dynaflow_dsl.bind.model import Body, KernelCall
from dynaflow_dsl.graph.model import (
    Argument,
    Graph,
    Operation,
    Reference,
    TensorType,
    TracedKernel,
    Value,
)
from dynaflow_dsl.resolve.model import Scalar

# Operators whose two tensors may be exchanged without any other rounding.
COMMUTATIVE = frozenset({"aten.add.Tensor", "aten.mul.Tensor"})


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a part and a reference part ways; `depth` counts what agreed before."""

    depth: int
    part: str
    reference: str


def values_of(graph: Graph) -> Mapping[str, Value]:
    """All values of a graph by name."""
    values = {item.name: item.value for item in graph.inputs}
    for operation in graph.operations:
        for value in operation.results:
            if value is not None:
                values[value.name] = value
    return values


def types_of(graph: Graph) -> Mapping[str, TensorType]:
    """The types of all values of a graph."""
    return {name: value.type for name, value in values_of(graph).items()}


def match(body: Body, traced: TracedKernel) -> KernelCall | Difference:
    """Find the program of a part in a reference, from the outputs backwards.

    Both outputs and operations that write in place have to agree, and nothing of the
    part may be left over. Of two ways to pair what may be exchanged, both are tried.
    """
    graph = traced.graph
    if len(body.outputs) != len(graph.outputs):
        return Difference(
            0,
            f"gives {_count(len(body.outputs))} to other parts",
            f"returns {_count(len(graph.outputs))}",
        )
    writes = [each for each in body.operations if each.writes]
    expected = [each for each in graph.operations if each.writes]
    if len(writes) != len(expected):
        return Difference(
            0, f"writes in place {len(writes)} times", f"does so {len(expected)} times"
        )
    matcher = _Matcher(body, traced)
    deepest = Difference(-1, "", "")
    for order in permutations(range(len(body.outputs))):
        found: _State | None = _State()
        for one, other in zip(writes, expected, strict=True):
            found = found and matcher.operations(one, other, found)
        for value, k in zip(body.outputs, order, strict=True):
            found = found and matcher.values(value, graph.outputs[k], found)
        if found is None:
            deepest = max(deepest, matcher.deepest, key=lambda each: each.depth)
            continue
        left = _left_over(body, found)
        if left is not None:
            return Difference(len(found.paired), f"also runs {_said(left)}", "does not")
        return KernelCall(
            tuple(found.tensors.items()),
            tuple(found.scalars.items()),
            order,
            len(graph.outputs),
        )
    return deepest


@dataclass(frozen=True, slots=True)
class _State:
    """What was paired so far; a new one for each pair, so that ways can be given up."""

    paired: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)
    scalars: Mapping[str, Scalar] = field(default_factory=dict)


class _Matcher:
    """Pairs values and operations of a part with those of a reference."""

    def __init__(self, body: Body, traced: TracedKernel) -> None:
        self.given = {*body.inputs, *body.parameters}
        self.made = _makers(body.operations)
        self.expected = _makers(traced.graph.operations)
        self.open = {number: name for name, number in traced.open_scalars}
        self.deepest = Difference(-1, "", "")

    def values(self, mine: str, other: str, state: _State) -> _State | None:
        """Pair two tensors."""
        if other not in self.expected:
            known = state.tensors.get(other)
            if mine in self.given and known in (None, mine):
                return _State(
                    state.paired, {**state.tensors, other: mine}, state.scalars
                )
            if mine in self.given:
                said = "reads another tensor there"
            else:
                said = f"computes it, by {_said(self.made[mine][0])}"
            return self._no_match(state, said, f"takes its argument '{other}'")
        if mine not in self.made:
            theirs = self.expected[other][0]
            return self._no_match(
                state, "takes it from outside", f"runs {_said(theirs)}"
            )
        (one, k), (two, j) = self.made[mine], self.expected[other]
        if k != j:
            return self._no_match(state, f"reads result {k}", f"reads result {j}")
        return self.operations(one, two, state)

    def operations(
        self, mine: Operation, other: Operation, state: _State
    ) -> _State | None:
        """Pair two operations with all that they read."""
        known = state.paired.get(mine.name)
        if known is not None or other.name in state.paired.values():
            if known == other.name:
                return state
            return self._no_match(
                state, f"reads {_said(mine)}", f"reads {_said(other)}"
            )
        same = (mine.operator, len(mine.arguments), [n for n, _ in mine.keywords]) == (
            other.operator,
            len(other.arguments),
            [n for n, _ in other.keywords],
        )
        if not same:
            return self._no_match(state, f"runs {_said(mine)}", f"runs {_said(other)}")
        paired = _State(
            {**state.paired, mine.name: other.name}, state.tensors, state.scalars
        )
        orders = [other.arguments]
        tensors = all(isinstance(each, Reference) for each in other.arguments)
        if mine.operator in COMMUTATIVE and tensors and not other.keywords:
            orders.append(other.arguments[::-1])
        for arguments in orders:
            pairs = [*zip(mine.arguments, arguments, strict=True)]
            keywords = zip(mine.keywords, other.keywords, strict=True)
            pairs += [(one[1], two[1]) for one, two in keywords]
            found: _State | None = paired
            for one, two in pairs:
                found = found and self._arguments(mine, one, two, found)
            if found is not None:
                return found
        return None

    def _arguments(
        self, operation: Operation, mine: Argument, other: Argument, state: _State
    ) -> _State | None:
        match mine, other:
            case Reference(one), Reference(two):
                return self.values(one, two, state)
            case tuple(), tuple() if len(mine) == len(other):
                found: _State | None = state
                for left, right in zip(mine, other, strict=True):
                    found = found and self._arguments(operation, left, right, found)
                return found
            case ((bool() | int() | float()), float()) if other in self.open:
                name = self.open[other]
                if state.scalars.get(name, mine) == mine:
                    scalars = {**state.scalars, name: mine}
                    return _State(state.paired, state.tensors, scalars)
        if type(mine) is type(other) and mine == other:
            return state
        where = f"in {_said(operation)}"
        return self._no_match(
            state, f"has {_written(mine)} {where}", f"has {_written(other)}"
        )

    def _no_match(self, state: _State, part: str, reference: str) -> _State | None:
        """Keep the difference that came last: the others are of ways given up."""
        if len(state.paired) > self.deepest.depth:
            self.deepest = Difference(len(state.paired), part, reference)
        return None


def _makers(operations: Sequence[Operation]) -> dict[str, tuple[Operation, int]]:
    return {
        value.name: (operation, k)
        for operation in operations
        for k, value in enumerate(operation.results)
        if value is not None
    }


def _left_over(body: Body, state: _State) -> Operation | None:
    """The first operation of the part that nothing of the reference stands for."""
    needed = (each for each in body.operations if not each.view)
    return next((each for each in needed if each.name not in state.paired), None)


def _said(operation: Operation) -> str:
    where = f", {operation.source}" if operation.source is not None else ""
    return f"{operation.operator} ({operation.module or 'reference'}{where})"


def _written(argument: Argument) -> str:
    match argument:
        case Reference():
            return "a tensor"
        case tuple():
            return f"[{', '.join(map(_written, argument))}]"
    return str(argument)


def _count(tensors: int) -> str:
    return "1 tensor" if tensors == 1 else f"{tensors} tensors"


def assignments(
    body: Body, types: Mapping[str, TensorType], count: int
) -> Iterator[tuple[TensorType, ...]]:
    """Types that `count` tensor arguments may have: those of the part, in any order.

    The order in which the part reads them comes first. Each list of types comes once.
    """
    given = [types[name] for name in (*body.inputs, *body.parameters)]
    seen: set[tuple[TensorType, ...]] = set()
    for order in permutations(given, count):
        if order not in seen:
            seen.add(order)
            yield order
