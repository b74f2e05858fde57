"""A schedule attached to a traced graph: which operation runs in which part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from dynaflow_dsl.graph.model import Graph, Input, Operation, Size
from dynaflow_dsl.graph.rowwise import Refusal
from dynaflow_dsl.resolve.model import Scalar, Schedule, Section, Via

BEFORE = "before"
AFTER = "after"

# Operations between iterations, which no part took. A word that no part can have.
GAP = "gap"


@dataclass(frozen=True, slots=True)
class Iteration:
    """One module that a section runs for. `index` counts from zero in program order.

    The path is empty outside an `each`: the scope is the model itself.
    """

    index: int
    path: str


class Output(NamedTuple):
    """The k-th result of a part, or of the gap with this number."""

    part: str
    output: int
    gap: int = 0


@dataclass(frozen=True, slots=True)
class Produced:
    """An input made by another part: of the same iteration, or for `after` the last."""

    part: str
    output: int


@dataclass(frozen=True, slots=True)
class Carried:
    """An input that the iteration before left, or a gap since; the first iteration of
    the section reads the value `initial`.

    The part is `gap` where only gaps make it.
    """

    part: str
    output: int
    initial: str


@dataclass(frozen=True, slots=True)
class Outer:
    """An input from outside the section; `values[i]` is what iteration `i` reads.

    The values are graph inputs, or results of `before`, of an earlier section or of
    the gap before this one.
    """

    values: tuple[str, ...]


Role: TypeAlias = Produced | Carried | Outer


@dataclass(frozen=True, slots=True)
class Instance:
    """One part in one iteration, in names of the graph.

    `inputs`, `parameters` and `outputs` are value names in the order of the part's
    function: position k means the same thing in every instance. `body` is the index of
    the instance's program in `BoundPart.bodies`. `operations` hold the copied views.
    `touched` are the graph's inputs whose memory it reads or, if True, writes, and
    memory that operations touch though it is no argument.
    `brought_by` are the parts that bring some of its parameters from host memory.
    """

    body: int
    operations: tuple[str, ...]
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    touched: tuple[tuple[str, bool], ...]
    brought_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """A distinct program, in the words of the instance `example` that runs it.

    `constants` are small tensors that the model's code makes: they belong to the text.
    """

    operations: tuple[Operation, ...]
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[Input, ...] = ()
    example: int = 0


@dataclass(frozen=True, slots=True)
class BoundPart:
    """A part with its programs and instances; `roles[k]` says where input k comes from.

    `attached` names the operations that no selector named and the rule for own
    operations gave to this part. One that `fetches` has no operations: each instance
    brings its parameters from host memory.
    """

    name: str
    bodies: tuple[Body, ...]
    instances: tuple[Instance, ...]
    roles: tuple[Role, ...]
    attached: frozenset[str]
    fetches: bool = False


@dataclass(frozen=True, slots=True)
class KernelCall:
    """How one program of a part calls its kernel.

    `tensors` pairs parameters with values of the program, `scalars` with numbers, texts
    and sizes that the program has there; `outputs[k]` is the number of the kernel's
    result that is output k of the part, and `results` how many it returns.
    """

    tensors: tuple[tuple[str, str], ...]
    scalars: tuple[tuple[str, Scalar | Size], ...]
    outputs: tuple[int, ...]
    results: int


@dataclass(frozen=True, slots=True)
class BoundKernel:
    """A part with its kernel, and the call of each of its programs.

    One that is trusted has no calls: `tensors` are its parameters, to be found among
    the names that the part's function gives its tensors, and `mutates` those of them
    that it writes. `communicator` is the process group that it uses, and `uses` what
    else one call may use at a time, on each stream for itself with `by_stream`. One
    that is not `declared` does not say what it writes.
    """

    part: str
    via: Via
    calls: tuple[KernelCall, ...]
    digest: str
    tensors: tuple[str, ...] = ()
    mutates: tuple[str, ...] = ()
    communicator: str | None = None
    uses: tuple[str, ...] = ()
    declared: bool = True
    by_stream: bool = False


@dataclass(frozen=True, slots=True)
class BoundSection:
    """A section with the modules that it runs for; `parts` are in program order."""

    section: Section
    iterations: tuple[Iteration, ...]
    parts: tuple[BoundPart, ...]

    @property
    def word(self) -> str:
        """What the file calls an iteration; nothing outside an `each`."""
        return self.section.each.name if self.section.each is not None else ""


class Place(NamedTuple):
    """An iteration of a section, by their numbers."""

    section: int
    iteration: int


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps of a binding, as one part: instance n runs before iteration `places[n]`.

    Its instances differ in what they read and give, so it has no roles.
    """

    part: BoundPart
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class StatedRows:
    """What a file states of parts, in one iteration, or others of one operation.

    The `operations` of `parts` together are row-wise: `results`, which others read, and
    the rows of the inputs in `written` depend on the same rows of what is read alone.
    `relied` are the operations that no rule proves, and why; the first ran in `module`.
    The `source` is who says so: the file, a plug-in that declares the operator, or the
    target, in which rows write places of their own.
    """

    parts: tuple[str, ...]
    operations: frozenset[str]
    results: tuple[str, ...]
    written: tuple[str, ...]
    relied: tuple[Refusal, ...]
    module: str
    source: Literal["file", "plug-in", "target"] = "file"


@dataclass(frozen=True, slots=True)
class Binding:
    """What `bind` hands to `plan`.

    `before` and `after` have one instance and are None when they hold no operation.
    `axes` gives, for each value that is cut or merged, the axis along which it is.
    `variables` numbers the results of parts and gaps: those with one number take turns
    in one variable. `joined` are the parts that run once over all pieces. `results` are
    the graph's outputs: names of graph inputs, of values of `before`, of `after`, of
    gaps, or of the last iteration of a section. `kernels` are those that parts run
    through; where none can be imported, as in `check`, there is none. `output_rows`
    holds the captured dimensions in which a step may be padded, with the axis of each
    result. `stated` is what the file says of rows and nothing proves.
    """

    schedule: Schedule
    graph: Graph
    sections: tuple[BoundSection, ...]
    before: BoundPart | None
    gaps: Gaps | None
    after: BoundPart | None
    axes: Mapping[str, int]
    variables: Mapping[Output, int]
    joined: frozenset[str]
    results: tuple[str, ...]
    kernels: tuple[BoundKernel, ...] = ()
    output_rows: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    stated: tuple[StatedRows, ...] = ()

    @property
    def parts(self) -> tuple[BoundPart, ...]:
        """The parts of all sections, in program order."""
        return tuple(part for section in self.sections for part in section.parts)

    @property
    def inner(self) -> tuple[BoundPart, ...]:
        """All that lies between `before` and `after`."""
        return (*self.parts, *([self.gaps.part] if self.gaps is not None else ()))

    @property
    def everything(self) -> tuple[BoundPart, ...]:
        """Every part in which an operation may be, `before` and `after` included."""
        outside = (self.before, self.after)
        first, last = ([part] if part is not None else [] for part in outside)
        return (*first, *self.inner, *last)
