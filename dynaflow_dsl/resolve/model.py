"""A schedule with every name resolved and every timeline written out.

What `resolve` hands on holds no sugar: a `stagger` has become windows, a step
without an index has become one step per piece, and every stream a step runs on is
known; parts that a `use` brought stand where the `use` stood. Spans point at the text
each thing came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax.model import Expression, Name

MAIN = "main"

Scalar: TypeAlias = bool | int | float | str

# Values of expressions: decimals are exact, and no list holds lists.
Number: TypeAlias = int | Fraction
Atom: TypeAlias = bool | int | Fraction | str
Value: TypeAlias = Atom | tuple[Atom, ...]

Priority: TypeAlias = Literal["normal", "high"]


@dataclass(frozen=True, slots=True)
class ModelReference:
    """`model "package.module:function" (layers = 8)`."""

    target: str
    arguments: tuple[tuple[str, Scalar], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a schedule with the value it has: its default, or that of `-P`."""

    name: str
    value: Value
    span: Span


@dataclass(frozen=True, slots=True)
class Requirement:
    """`require CONDITION`: the one expression that stays one.

    What it says of the model is known only once there is a model, and the file has to
    be read to know which model that is.
    """

    condition: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class UsedFact:
    """What a requirement read; `given` when the command line said it (`-F`)."""

    name: str
    value: Scalar
    given: bool


@dataclass(frozen=True, slots=True)
class Stream:
    """A CUDA stream beside `main`, which always exists and is not listed.

    `sms` is the number of multiprocessors that its work is kept to, and `gemm_sms` the
    number that its matrix products are planned for; None is all.
    """

    name: str
    span: Span
    priority: Priority = "normal"
    sms: int | None = None
    gemm_sms: int | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """Sizes of a dimension, ascending, at which a step becomes one CUDA graph.

    The options are those of the whole step, the same on all lines of a schedule:
    `static` compiles parts for each size alone, `pieces` captures what lies between
    parts that cannot be captured. `name_span` is the dimension's.
    """

    dimension: str
    sizes: tuple[int, ...]
    name_span: Span
    span: Span
    static: bool = False
    pieces: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """Cuts a named dimension into pieces, in proportion to `weights` or by phase.

    `index` names the piece (`half` in `split batch into 2 as half`); every cut but the
    last is a multiple of `align`. With `phases` there are no weights: each step says
    how many rows belong to each phase, and pieces go by their names.
    """

    dimension: str
    weights: tuple[Fraction, ...]
    index: str
    align: int
    span: Span
    phases: tuple[Name, ...] = ()

    @property
    def pieces(self) -> tuple[str, ...]:
        """What each piece is called in a timeline: its phase, or its number."""
        if self.phases:
            return tuple(phase.text for phase in self.phases)
        return tuple(map(str, range(len(self.weights))))


@dataclass(frozen=True, slots=True)
class PathSelector:
    """All operations at or below the modules that a pattern matches.

    `pattern` is the path without its anchor and leading dot, split at dots; `()` is the
    scope itself. Segments may hold `*` and `?`; `**` stands for any depth.
    """

    anchor: Literal["scope", "prev", "next", "root"]
    pattern: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class PartSelector:
    """The operations of another part of the same scope."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class OwnSelector:
    """`own in SELECTOR`: the operations of the selected modules themselves.

    Those are the modules that the operand's paths match, not what lies below them.
    """

    operand: Selector
    span: Span


@dataclass(frozen=True, slots=True)
class OperationsSelector:
    """`all_reduce in SELECTOR`, `"mark:gate" in SELECTOR`: some of its operations.

    `by` says what `patterns` are compared with: the operation's operator, the names of
    marks or of functions that it ran under. A `kind` is an alias for several operators,
    with the waits for their results. `name` is as written, without the prefix.
    """

    by: Literal["kind", "operator", "mark", "function"]
    name: str
    patterns: tuple[str, ...]
    operand: Selector
    span: Span


@dataclass(frozen=True, slots=True)
class RestSelector:
    """`rest`: what no other part of the scope took, own operations apart."""

    span: Span


@dataclass(frozen=True, slots=True)
class WeightsSelector:
    """`weights in SELECTOR`: the parameters of the modules that the operand names.

    It is the whole selector of its part, which runs no operations: it brings these
    parameters from host memory. Modules are those of the part's own iteration, each
    with all below.
    """

    operand: Selector
    span: Span


@dataclass(frozen=True, slots=True)
class UnionSelector:
    """`left + right`."""

    left: Selector
    right: Selector
    span: Span


@dataclass(frozen=True, slots=True)
class DifferenceSelector:
    """`left - right`."""

    left: Selector
    right: Selector
    span: Span


@dataclass(frozen=True, slots=True)
class FirstMatchSelector:
    """`A or B or C`: in each iteration the first that names an operation there."""

    choices: tuple[Selector, ...]
    span: Span


Selector: TypeAlias = (
    PathSelector
    | PartSelector
    | OwnSelector
    | OperationsSelector
    | RestSelector
    | WeightsSelector
    | UnionSelector
    | DifferenceSelector
    | FirstMatchSelector
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A callable of the user's, to be imported from `target`, "package.module:name".

    A `trusted` one is not compared with the part as text: names of its parameters say
    which tensor each is.
    """

    name: str
    target: str
    symmetric_memory: bool
    span: Span
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Via:
    """`via NAME(argument = value)`: the kernel that a part runs through."""

    kernel: Kernel
    arguments: tuple[tuple[str, Value], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Part:
    """A named set of operations and the stream of each of its pieces.

    `streams` has one entry per piece of the split (one without a split).
    `name_span` is the name alone, `span` the whole statement. `rowwise` is the option
    that states that its rows do not depend on each other, None where it is not given.
    """

    name: str
    streams: tuple[str, ...]
    selector: Selector
    name_span: Span
    span: Span
    via: Via | None = None
    rowwise: Span | None = None

    @property
    def fetches(self) -> bool:
        """Whether it brings weights from host memory; such a part runs once for all
        pieces."""
        return isinstance(self.selector, WeightsSelector)


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of a part in a window; `previous` is that of the iteration before.

    `piece` is None when the part runs once over all pieces joined (`x[*]`). `after`
    are steps that it must follow though the data may not need it.
    """

    part: str
    piece: int | None
    previous: bool
    span: Span
    after: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """Steps in sequence on one stream."""

    stream: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Runs that are claimed to be concurrent.

    `text` is the window in canonical form, e.g. `attn[0] | prev.mlp[1]`.
    """

    runs: tuple[Run, ...]
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Each:
    """`each NAME in PATH having PATH`: the modules that a section repeats over.

    Iterations are those matches of `path` below which `having` matches something.
    """

    name: str
    path: PathSelector
    span: Span
    having: PathSelector | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Parts and their timeline: of one iteration of an `each`, or of the whole model.

    Without an `each` there is one iteration, whose scope is the model. A `stagger`
    outside an `each` is written out to its end, so that no step is `previous`.
    """

    each: Each | None
    parts: tuple[Part, ...]
    windows: tuple[Window, ...]
    timeline: Literal["order", "stagger"]
    timeline_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Schedule:
    """One named plan. `doc` is the comment block above it, without `#`.

    `sections` run one after the other, as their timelines stand in the text. At most
    one of them is outside an `each`. No two parts share a name.
    """

    name: str
    doc: str
    streams: tuple[Stream, ...]
    split: Split | None
    sections: tuple[Section, ...]
    name_span: Span
    span: Span
    parameters: tuple[Parameter, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    captures: tuple[Capture, ...] = ()

    @property
    def piece_names(self) -> tuple[str, ...]:
        """What each microbatch is called; there is one without a split."""
        return self.split.pieces if self.split else ("0",)

    @property
    def pieces(self) -> int:
        """Number of microbatches; one without a split."""
        return len(self.piece_names)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all sections."""
        return tuple(part for section in self.sections for part in section.parts)


@dataclass(frozen=True, slots=True)
class SelectLine:
    """One line of a `select`; `condition` is None in `else`.

    `schedule` is the name of one of the file's schedules, None for `sequential`;
    `choice` is what the line says, and `span` the whole line. In the condition, names
    of entries beside `phase` are texts.
    """

    condition: Expression | None
    schedule: str | None
    choice: str
    span: Span


@dataclass(frozen=True, slots=True)
class Select:
    """Which schedule a step runs: that of the first line that holds, `else` the last.

    `equal` are values of a step that all ranks see alike, and `phases` the entries that
    conditions name, each where it stands.
    """

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    requirements: tuple[Requirement, ...]
    equal: tuple[Name, ...]
    phases: tuple[Name, ...]
    lines: tuple[SelectLine, ...]
    name_span: Span
    span: Span


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """What one `.dfs` file says. `digest` is that of its meaning, not its layout.

    `given` are the parameters that the command line set, in its words. With a `select`,
    `schedules` are those that it chooses, each with arguments of its own.
    """

    model: ModelReference | None
    schedules: tuple[Schedule, ...]
    digest: str
    given: tuple[tuple[str, str], ...] = ()
    select: Select | None = None
