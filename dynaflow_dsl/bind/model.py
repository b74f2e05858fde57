"""A schedule attached to a traced graph: which operation runs in which part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from dynaflow_dsl.graph.model import Graph, Input, Operation
from dynaflow_dsl.resolve.model import Schedule

BEFORE = "before"
AFTER = "after"


@dataclass(frozen=True, slots=True)
class Iteration:
    """One module that the `each` matched. `index` counts from zero in program order."""

    index: int
    path: str


@dataclass(frozen=True, slots=True)
class Produced:
    """An input made by another part: of the same iteration, or for `after` the last."""

    part: str
    output: int


@dataclass(frozen=True, slots=True)
class Carried:
    """An input made by the iteration before; iteration 0 reads the value `initial`."""

    part: str
    output: int
    initial: str


@dataclass(frozen=True, slots=True)
class Outer:
    """An input from outside the iterations; `values[i]` is what iteration `i` reads.

    The values are graph inputs or results of `before`.
    """

    values: tuple[str, ...]


Role: TypeAlias = Produced | Carried | Outer


@dataclass(frozen=True, slots=True)
class Instance:
    """One part in one iteration, in names of the graph.

    `inputs`, `parameters` and `outputs` are value names in the order of the part's
    function: position k means the same thing in every instance. `body` is the index of
    the instance's program in `BoundPart.bodies`. `operations` hold the copied views.
    `touched` are the graph's inputs whose memory it reads or, if True, writes.
    """

    body: int
    operations: tuple[str, ...]
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    touched: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class Body:
    """A distinct program, in the words of the first instance that runs it.

    `constants` are small tensors that the model's code makes: they belong to the text.
    """

    operations: tuple[Operation, ...]
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundPart:
    """A part with its programs and instances; `roles[k]` says where input k comes from.

    `attached` names the operations that no selector named and the rule for own
    operations gave to this part.
    """

    name: str
    bodies: tuple[Body, ...]
    instances: tuple[Instance, ...]
    roles: tuple[Role, ...]
    attached: frozenset[str]


@dataclass(frozen=True, slots=True)
class Binding:
    """What `bind` hands to `plan`.

    `parts` are in program order. `before` and `after` have one instance and are None
    when they hold no operation. `axes` gives, for each value that is cut or merged, the
    axis along which it is. `results` are the graph's outputs: names of graph inputs, of
    values of `before`, of `after`, or of the last iteration. `output_rows` holds the
    captured dimensions in which a step may be padded, with the axis of each result.
    """

    schedule: Schedule
    graph: Graph
    iterations: tuple[Iteration, ...]
    before: BoundPart | None
    parts: tuple[BoundPart, ...]
    after: BoundPart | None
    axes: Mapping[str, int]
    results: tuple[str, ...]
    output_rows: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
