"""The traced model as plain data: no torch, no FX, no sympy.

A graph is a flat list of ATen operations in program order. Values are tensors; sizes
never appear as values, only inside shapes and arguments, as an integer times a product
of named dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Size:
    """`factor` times the product of `dimensions` (sorted names), e.g. 16 * batch."""

    factor: int
    dimensions: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.dimensions:
            return str(self.factor)
        product = " * ".join(self.dimensions)
        return product if self.factor == 1 else f"{self.factor} * {product}"

    def __mul__(self, other: Size) -> Size:
        dimensions = tuple(sorted(self.dimensions + other.dimensions))
        return Size(self.factor * other.factor, dimensions)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and strides in elements, and dtype without the `torch.` prefix."""

    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor. Values with equal `storage` may share memory, as views do."""

    name: str
    type: TensorType
    storage: int


@dataclass(frozen=True, slots=True)
class Reference:
    """An argument that is the value of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A torch constant by its qualified name: `float32` (dtype), `strided` (layout),
    `preserve_format` (memory format); `device` is the device the module runs on."""

    kind: Literal["dtype", "layout", "memory_format", "device"]
    name: str


# int, float, bool, str and None are themselves; a list argument is a tuple.
Argument: TypeAlias = (
    "Reference | Size | Constant | int | float | bool | str | None"
    " | tuple[Argument, ...]"
)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Where in the model's Python code an operation comes from.

    `file` is relative to the folder of packages (`transformers/models/...`), never
    absolute; `code` is the line's text, stripped.
    """

    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One ATen call.

    `operator` is the overload's name, `aten.linear.default`. `results` holds one value
    per tensor that the operator returns, None where nobody reads it; `multiple` says
    that it returns a tuple or list (then results are unpacked even if there is one).
    The result of an in-place operation is not a value: its readers read the mutated
    input. `writes` names the values whose storage it writes. `view` is True when every
    result only aliases an input (such operations belong to no part). `tags` are
    operator tags that checks use (`pointwise`, `random`; `host`: no CUDA graph can hold
    it). `module` is the path in the user's model, as `named_modules()` has it; "" is
    the model itself.
    `functions` are the qualified names of the functions of the model's code that it ran
    in, `marks` the names that the code gave it (`dynaflow_dsl.mark`), outermost first.
    """

    name: str
    operator: str
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...]
    results: tuple[Value | None, ...]
    multiple: bool
    writes: tuple[str, ...]
    view: bool
    tags: tuple[str, ...]
    module: str
    source: SourceLine | None
    functions: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that comes from outside.

    Parameters and buffers belong to the model and are found by `name`, their path in
    it. Step inputs are arguments of the adapter: `argument` is its position, `name` its
    name, with `.k` appended for the k-th tensor of a list argument. `persistent` inputs
    keep their address between steps (KV caches). `constant` inputs are small tensors
    made while tracing; their `data` is a nested tuple of numbers. A persistent input
    has room for `capacity` rows, None where its owner decides; with `scratch`, those
    beyond a step's size may be overwritten. In a `disjoint` one, each row reads and
    writes places of its own, which other inputs say (a cache with a table of pages);
    where the graph has phases, each phase does.
    """

    name: str
    kind: Literal["parameter", "buffer", "constant", "step", "persistent"]
    value: Value
    argument: int | None = None
    data: object = None
    capacity: int | None = None
    scratch: bool = False
    disjoint: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """One entry of a traced model.

    `outputs` are names of values, in the adapter's order. `dimensions` are the named
    dynamic dimensions with their bounds (inclusive; None is unbounded). `signature` are
    the adapter's argument names with the number of tensors of a list argument, or None
    for a plain tensor. `modules` are all module paths of the user's model. `fixed` are
    sizes that every step of the entry has, by the names that a `select` reads. `phases`
    are those that rows of a dimension belong to, in the order in which they lie there.
    With `context`, steps of a piece run in a context manager that the caller makes for
    the piece's rows.
    """

    entry: str
    inputs: tuple[Input, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]
    dimensions: tuple[tuple[str, int, int | None], ...]
    signature: tuple[tuple[str, int | None], ...]
    modules: tuple[str, ...]
    fixed: tuple[tuple[str, int], ...] = ()
    phases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    context: bool = False


@dataclass(frozen=True, slots=True)
class TracedModel:
    """What `trace` makes and a snapshot holds: all entries of one target.

    `target` and `arguments` say how to make it again. `facts` are what schedules may
    require (`tp_size`, `model`). `captured_by` names the tracer ("export").
    `fingerprint` are versions and hashes that `load` compares, by name.
    """

    target: str
    arguments: tuple[tuple[str, bool | int | float | str], ...]
    model_class: str
    device: str
    dtype: str
    captured_by: str
    facts: tuple[tuple[str, bool | int | float | str], ...]
    fingerprint: tuple[tuple[str, str], ...]
    graphs: tuple[Graph, ...]


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """A kernel's reference traced for tensors of some types.

    `graph` has a step input for each tensor parameter, of its name. `open_scalars` are
    parameters that nobody gave a value, each with the number or the text that stands
    for it in the graph. `digest` is that of the kernel's source, `communicator` the
    process group that it uses, and `uses` what else one call may use at a time; with
    `by_stream` each stream has these for itself.
    """

    graph: Graph
    open_scalars: tuple[tuple[str, int | float | str], ...]
    mutates: tuple[str, ...] | None
    digest: str
    communicator: str | None = None
    uses: tuple[str, ...] = ()
    by_stream: bool = False


@dataclass(frozen=True, slots=True)
class TrustedKernel:
    """What a kernel says of itself, without a reference to compare it with.

    `tensors` are the parameters that take tensors, `mutates` those that are written.
    """

    tensors: tuple[str, ...]
    mutates: tuple[str, ...] | None
    digest: str
    communicator: str | None = None
    uses: tuple[str, ...] = ()
    by_stream: bool = False
