"""What the row check says, and what its rules see of an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dynaflow_dsl.graph.model import (
    Argument,
    Operation,
    Reference,
    Size,
    Value,
)
from dynaflow_dsl.graph.rowwise.sizes import ONE, as_size, divide


@dataclass(frozen=True, slots=True)
class Shared:
    """The tensor has the same values in every microbatch as in the whole batch."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A microbatch's tensor is the whole tensor's rows of that microbatch.

    The size of `axis` is outer * dimension * inner, laid out in that order; `inner` is
    what remains. Pieces can be concatenated along `axis` only where `outer` is 1.
    """

    axis: int
    outer: Size = ONE


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """Each element is the number of its own row, counted inside the microbatch.

    It differs from the whole batch's numbers, so it may only pick rows of a tensor that
    is split as well. `axis` and `outer` are as in `Rows`.
    """

    axis: int
    outer: Size = ONE


Fact: TypeAlias = Shared | Rows | RowNumbers


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an operation cannot run per microbatch, in the words of the model."""

    operation: str
    reason: str


@dataclass(frozen=True, slots=True)
class RowCheck:
    """The facts of all values that the region makes or reads, and the refusals.

    Values that follow from a refused operation have no fact. Without refusals the
    region may run once per microbatch, if what it relies on is true: `relied` are the
    operations of which somebody stated what no rule proves. `private` are the values
    that follow from those inside: each belongs to one microbatch. `claimed` are those
    that are rows if the statement is true, and `written` the inputs of such operations
    whose rows they write. `declared` are operations of which plug-ins declare how they
    treat rows. `disjoint` are those that write into memory of which the target says
    that rows have places of their own.
    """

    facts: Mapping[str, Fact]
    refusals: tuple[Refusal, ...]
    relied: tuple[Refusal, ...] = ()
    private: frozenset[str] = frozenset()
    claimed: Mapping[str, Rows] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    declared: tuple[str, ...] = ()
    disjoint: tuple[str, ...] = ()


class RefusedError(Exception):
    """Raised by a rule and caught by the check: this operation mixes rows."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, in the words of the user's model."""
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand: its value, its fact, and what is known of its storage.

    `sliced` says that a microbatch sees it as a slice of a whole tensor, with the whole
    tensor's strides. `written` says that something writes its storage in place, and
    `disjoint` that each row reads and writes places of its own in it.
    """

    value: Value
    fact: Fact
    sliced: bool = False
    written: bool = False
    disjoint: bool = False

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes in the whole batch."""
        return self.value.type.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.value.type.shape)


@dataclass(frozen=True, slots=True)
class Call:
    """One operation with the facts of its operands, as rules see it."""

    operation: Operation
    tensors: Mapping[str, Tensor]
    dimension: str

    @property
    def rows(self) -> Size:
        """The size of the split dimension."""
        return Size(1, (self.dimension,))

    def argument(self, position: int, name: str, default: Argument = None) -> Argument:
        """Return an argument by its position or keyword, else its default."""
        if position < len(self.operation.arguments):
            return self.operation.arguments[position]
        return dict(self.operation.keywords).get(name, default)

    def optional(self, position: int, name: str) -> Tensor | None:
        """Return a tensor argument, or None where none is given."""
        match self.argument(position, name):
            case Reference(value):
                return self.tensors[value]
            case None:
                return None
            case _:
                raise RefusedError(f"{name} is not a tensor")

    def tensor(self, position: int = 0, name: str = "self") -> Tensor:
        """Return a tensor argument that has to be there."""
        found = self.optional(position, name)
        if found is None:
            raise RefusedError(f"{name} is missing")
        return found

    def tensor_list(self, position: int, name: str) -> tuple[Tensor, ...]:
        """Return a list argument whose items are all tensors."""
        items = self.argument(position, name)
        if not isinstance(items, tuple):
            raise RefusedError(f"{name} is not a list of tensors")
        found: list[Tensor] = []
        for item in items:
            if not isinstance(item, Reference):
                raise RefusedError(f"{name} holds something that is no tensor")
            found.append(self.tensors[item.name])
        return tuple(found)

    def integers(self, position: int, name: str) -> tuple[int, ...] | None:
        """Return a list of plain integers (one integer is a list of one), or None."""
        found = self.argument(position, name)
        if found is None:
            return None
        items = found if isinstance(found, tuple) else (found,)
        return tuple(plain_integer(item, name) for item in items)

    def axis(self, rank: int, position: int, name: str, default: int = 0) -> int:
        """Return an axis argument, counted from the front."""
        found = plain_integer(self.argument(position, name, default), name)
        return front_axis(found, rank)

    def axes(self, rank: int, position: int, name: str) -> tuple[int, ...]:
        """Return a list of axes, counted from the front; absent is empty."""
        found = self.integers(position, name) or ()
        return tuple(front_axis(axis, rank) for axis in found)

    def sizes(self, position: int, name: str) -> tuple[Size, ...]:
        """Return a list of sizes."""
        items = self.argument(position, name)
        found = []
        for item in items if isinstance(items, tuple) else (items,):
            size = as_size(item)
            if size is None:
                raise RefusedError(f"{name} holds something that is no size")
            found.append(size)
        return tuple(found)

    def all_shared(self) -> bool:
        """Say whether no operand differs between microbatches."""
        return all(isinstance(tensor.fact, Shared) for tensor in self.tensors.values())

    def result(self) -> Value | None:
        """Return the first result that somebody reads."""
        return next((value for value in self.operation.results if value), None)

    def shape(self) -> tuple[Size, ...]:
        """Return the shape of the result; for an in-place write, of its target."""
        value = self.result()
        return self.tensor().shape if value is None else value.type.shape


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operator treats rows.

    `apply` returns the fact that holds for every result (and, written in place, for the
    target), or one for each result, or raises `RefusedError`. `sizes` says that the
    operator's integers are shapes or bounds that the function looks at, so that they
    may hold the split dimension. `in_place` allows a write into the first argument.
    `chance` says that the function makes sure that nothing random happens. `hidden`
    says that the operator may write what its signature does not say, so that the
    function is asked also where all operands are shared. `declared` says that it is
    what a plug-in declares: then any argument may be written, and keeps its fact.
    """

    apply: Callable[[Call], Fact | tuple[Fact, ...]]
    sizes: bool = False
    in_place: bool = False
    chance: bool = False
    hidden: bool = False
    declared: bool = False


def plain_integer(argument: Argument, name: str) -> int:
    """Read an argument that has to be an integer known when tracing."""
    size = as_size(argument)
    if size is None or size.dimensions:
        raise RefusedError(f"{name} is not a plain integer")
    return size.factor


def front_axis(axis: int, rank: int) -> int:
    """Count an axis from the front; a scalar counts as having one axis."""
    span = max(rank, 1)
    if not -span <= axis < span:
        raise RefusedError(f"axis {axis} is out of range")
    return axis % span


def moved(fact: Fact, axis: int, outer: Size | None = None) -> Fact:
    """Return the same kind of fact at another axis."""
    if isinstance(fact, Shared):
        return fact
    return replace(fact, axis=axis, outer=fact.outer if outer is None else outer)


def only_rows(tensor: Tensor) -> Rows | None:
    """Return how an operand is split, None if shared; row numbers are refused."""
    match tensor.fact:
        case Rows():
            return tensor.fact
        case RowNumbers():
            raise RefusedError(
                "uses the row numbers of the split dimension as data, "
                "which start again in each microbatch"
            )
        case Shared():
            return None


def fact_of_shape(shape: tuple[Size, ...], dimension: str) -> Fact | None:
    """Return how a tensor of constant content is split; None if in two axes."""
    axes = [i for i, size in enumerate(shape) if dimension in size.dimensions]
    match axes:
        case []:
            return Shared()
        case [axis] if shape[axis].dimensions.count(dimension) == 1:
            return Rows(axis)
        case _:
            return None


def why_not_fitting(fact: Fact, shape: tuple[Size, ...], dimension: str) -> str | None:
    """Compare a fact with a shape: the reason why they disagree, or None.

    It is the last line of defence behind every rule: the split dimension has to be in
    the fact's axis, once, and nowhere else.
    """
    axes = [i for i, size in enumerate(shape) if dimension in size.dimensions]
    if isinstance(fact, Shared):
        if axes:
            return "makes rows of the split dimension out of tensors without rows"
        return None
    if axes != [fact.axis]:
        if len(axes) > 1:
            return "pairs rows with rows: the result has the split dimension twice"
        return "loses the split dimension"
    inner = divide(shape[fact.axis], fact.outer * Size(1, (dimension,)))
    if inner is None or dimension in inner.dimensions:
        return "does not keep rows together along the split dimension"
    return None
