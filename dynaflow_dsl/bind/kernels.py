"""Parts that run through kernels: does a part do what the kernel's reference does?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dynaflow_dsl.bind.colours import COMMUTATIVE, Program, colours, function_of
from dynaflow_dsl.bind.model import Body, KernelCall
from dynaflow_dsl.graph.model import (
    Argument,
    Graph,
    Operation,
    Reference,
    Size,
    TensorType,
    TracedKernel,
    Value,
)
from dynaflow_dsl.resolve.model import Scalar

# Sums and products of which colours do not say which tensor is which: so many are tried
# both ways round.
MOST_CHOICES = 1000


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
    part may be left over. What may be paired in several ways, outputs and the tensors
    of a sum, is told apart by all that is computed of it and from it (`colours`). Where
    that leaves a choice, the first way is taken that goes on, and what it paired tells
    the rest apart: so the work is polynomial.
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
    found: _State | None = _State()
    for one, other in zip(writes, expected, strict=True):
        found = found and matcher.operations(one, other, found)
    order: list[int] = []
    for k, value in enumerate(body.outputs):
        found = found and matcher.output(value, k, order, found)
    if found is None:
        return matcher.deepest
    left = _left_over(body, found)
    if left is not None:
        return Difference(len(found.paired), f"also runs {_said(left)}", "does not")
    return KernelCall(
        tuple(found.tensors.items()),
        tuple(found.scalars.items()),
        tuple(order),
        len(graph.outputs),
    )


@dataclass(frozen=True, slots=True)
class _State:
    """What was paired so far; a new one for each pair, so that ways can be given up."""

    paired: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)
    scalars: Mapping[str, Scalar | Size] = field(default_factory=dict)


class _Matcher:
    """Pairs values and operations of a part with those of a reference."""

    def __init__(self, body: Body, traced: TracedKernel) -> None:
        self.graph = traced.graph
        self.given = {*body.inputs, *body.parameters}
        self.made = _makers(body.operations)
        self.expected = _makers(traced.graph.operations)
        self.open = {number: name for name, number in traced.open_scalars}
        self.deepest = Difference(-1, "", "")
        self.choices = 0
        scalars = not traced.open_scalars
        self.mine = Program(body.operations, tuple(body.outputs), scalars)
        self.other = Program(traced.graph.operations, traced.graph.outputs, scalars)
        self.colour = colours(self.mine, self.other, {}, {})

    def output(
        self, value: str, number: int, order: list[int], state: _State
    ) -> _State | None:
        """Pair an output with one of the reference that has no partner yet."""
        free = [k for k in range(len(self.graph.outputs)) if k not in order]
        if number:
            self._refine(state)
        # One of another colour cannot do, but says best where the two part ways.
        free.sort(key=lambda k: not self._alike(value, self.graph.outputs[k]))
        for k in free:
            found = self.values(value, self.graph.outputs[k], state)
            if found is not None:
                order.append(k)
                return found
        return None

    def _refine(self, state: _State) -> None:
        self.colour = colours(self.mine, self.other, state.paired, state.tensors)

    def _alike(self, mine: Argument | str, other: Argument | str) -> bool:
        """Whether two tensors have one colour."""
        one = mine.name if isinstance(mine, Reference) else mine
        two = other.name if isinstance(other, Reference) else other
        return self.colour[0].get(str(one)) == self.colour[1].get(str(two))

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
        same = (
            function_of(mine),
            len(mine.arguments),
            [n for n, _ in mine.keywords],
        ) == (
            function_of(other),
            len(other.arguments),
            [n for n, _ in other.keywords],
        )
        if not same:
            return self._no_match(state, f"runs {_said(mine)}", f"runs {_said(other)}")
        paired = _State(
            {**state.paired, mine.name: other.name}, state.tensors, state.scalars
        )
        for arguments in self._orders(mine, other, paired):
            pairs = [*zip(mine.arguments, arguments, strict=True)]
            keywords = zip(mine.keywords, other.keywords, strict=True)
            pairs += [(one[1], two[1]) for one, two in keywords]
            found: _State | None = paired
            for one, two in pairs:
                found = found and self._arguments(mine, one, two, found)
            if found is not None:
                return found
        return None

    def _orders(
        self, mine: Operation, other: Operation, state: _State
    ) -> list[tuple[Argument, ...]]:
        """The reference's arguments, in each order that may be that of the part."""
        given = other.arguments
        tensors = all(isinstance(each, Reference) for each in given)
        if mine.operator not in COMMUTATIVE or not tensors or other.keywords:
            return [given]
        orders = [given, given[::-1]]
        alike = [all(map(self._alike, mine.arguments, order)) for order in orders]
        if all(alike):
            # What was paired on the way here may tell them apart by now.
            self._refine(state)
            alike = [all(map(self._alike, mine.arguments, order)) for order in orders]
        if alike[0] != alike[1]:
            return [orders[alike.index(True)]]
        self.choices += 1
        return orders if self.choices <= MOST_CHOICES else orders[:1]

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
            case _, float() | int() | str() if other in self.open:
                name, number = self.open[other], _scalar(mine, other)
                if number is not None and state.scalars.get(name, number) == number:
                    scalars = {**state.scalars, name: number}
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


def _scalar(mine: Argument, stand_in: float | int | str) -> Scalar | Size | None:
    """What a part has where the reference has a stand-in; None if that cannot be."""
    match stand_in, mine:
        case float(), bool() | int() | float():
            return mine
        case int(), bool():
            return None
        case int(), int() | Size():
            return mine
        case str(), str():
            return mine
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

    The order in which the part reads them comes first. Each list of types comes once,
    and is found without those that equal it: a part may read many tensors of one type.
    """
    given = [types[name] for name in (*body.inputs, *body.parameters)]
    places: dict[TensorType, list[int]] = {}
    for place, type_ in enumerate(given):
        places.setdefault(type_, []).append(place)

    def orders(
        chosen: tuple[TensorType, ...], used: Mapping[TensorType, int]
    ) -> Iterator[tuple[TensorType, ...]]:
        if len(chosen) == count:
            yield chosen
            return
        left = [
            (mine[used.get(type_, 0)], type_)
            for type_, mine in places.items()
            if used.get(type_, 0) < len(mine)
        ]
        for _, type_ in sorted(left, key=lambda pair: pair[0]):
            number = used.get(type_, 0) + 1
            yield from orders((*chosen, type_), {**used, type_: number})

    return orders((), {})
