"""Layered graphs made by hand: parts with data edges, as many outputs, and caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dynaflow_dsl.bind import bind
from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.graph.model import (
    Argument,
    Graph,
    Input,
    Operation,
    Reference,
    Size,
    TensorType,
    TracedModel,
    Value,
)
from dynaflow_dsl.pipeline import understand
from dynaflow_dsl.resolve.model import ScheduleFile
from dynaflow_dsl.source import Source

ROWS = TensorType((Size(1, ("batch",)), Size(4)), (Size(4), Size(1)), "float32")
POINTWISE = ("pointwise",)


@dataclass(frozen=True, slots=True)
class Read:
    """An input of a part: output `output` of `part`, in this layer or the one before.

    `part` None is a value from outside: the model's input.
    """

    part: str | None
    output: int = 0
    carried: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """A part: what it reads, how many results it has, whether it touches the cache.

    `cache` is `""`, `"r"` or `"w"`: the layer's own tensor of the list `keys`, or with
    `"R"` and `"W"` one tensor `state` that all layers share. With `summed` the last
    operation is none that is compiled with a copy of its result.
    """

    name: str
    reads: tuple[Read, ...]
    outputs: int = 1
    cache: str = ""
    summed: bool = False


@dataclass(frozen=True, slots=True)
class Layered:
    """A model of equal layers. `results` and `head` name outputs of the last layer.

    With `embed` a part before the layers makes what the first one carries; with
    `head` one after them reads those outputs, and with `shortcut` what the first layer
    carries as well. `cache_of` tells which of the `keys` each layer touches,
    `outer_of` which layers (1) read another value from outside.
    """

    shapes: tuple[Shape, ...]
    layers: int
    results: tuple[tuple[str, int], ...]
    head: tuple[tuple[str, int], ...] = ()
    embed: bool = True
    shortcut: bool = False
    argument: str = "x"
    cache_of: tuple[int, ...] = ()
    outer_of: tuple[int, ...] = ()

    def shape(self, name: str) -> Shape:
        return next(shape for shape in self.shapes if shape.name == name)

    def carried(self) -> list[tuple[str, int]]:
        """Outputs that the next layer reads, each once."""
        found = [
            (read.part, read.output)
            for shape in self.shapes
            for read in shape.reads
            if read.carried and read.part is not None
        ]
        return list(dict.fromkeys(found))


@dataclass(slots=True)
class _Writer:
    operations: list[Operation] = field(default_factory=list)
    storages: int = 100

    def run(
        self,
        name: str,
        operator: str,
        module: str,
        *arguments: Argument,
        tags: tuple[str, ...] = POINTWISE,
    ) -> str:
        self.storages += 1
        self.operations.append(
            Operation(
                name,
                operator,
                arguments,
                (),
                (Value(name, ROWS, self.storages),),
                False,
                (),
                False,
                tags,
                module,
                None,
            )
        )
        return name

    def write(self, name: str, module: str, target: str, source: str) -> None:
        self.operations.append(
            Operation(
                name,
                "aten.copy_.default",
                (Reference(target), Reference(source)),
                (),
                (),
                False,
                (target,),
                False,
                POINTWISE,
                module,
                None,
            )
        )

    def total(self, name: str, module: str, values: Sequence[str]) -> str:
        """One value that depends on all."""
        total = self.run(
            f"{name}_in", "aten.relu.default", module, Reference(values[0])
        )
        for k, value in enumerate(values[1:]):
            total = self.run(
                f"{name}_in{k}",
                "aten.add.Tensor",
                module,
                Reference(total),
                Reference(value),
            )
        return total

    def scaled(self, name: str, module: str, value: str, factor: float) -> str:
        return self.run(name, "aten.mul.Tensor", module, Reference(value), factor)


def graph_of(model: Layered) -> Graph:
    """The traced form of a layered model."""
    writer, x = _Writer(), model.argument
    keys = any(shape.cache in ("r", "w") and shape.cache for shape in model.shapes)
    state = any(shape.cache in ("R", "W") for shape in model.shapes)
    inputs = [Input(x, "step", Value(x, ROWS, 0), argument=0)]
    signature: list[tuple[str, int | None]] = [(x, None)]
    if keys:
        signature.append(("keys", model.layers))
        for i in range(model.layers):
            value = Value(f"keys.{i}", ROWS, 1 + i)
            inputs.append(Input(f"keys.{i}", "persistent", value, argument=1))
    if state:
        place = len(signature)
        signature.append(("state", None))
        value = Value("state", ROWS, 90)
        inputs.append(Input("state", "persistent", value, argument=place))
    made: dict[tuple[str, int], str] = {}
    for k, key in enumerate(model.carried()):
        if model.embed:
            made[key] = writer.scaled(f"start{k}", "embed", x, float(k + 2))
        else:
            made[key] = x
    if model.outer_of:
        writer.scaled("other", "embed", x, 9.0)
    start = list(made.values())[:1] if model.shortcut else []
    for i in range(model.layers):
        made = _layer(model, i, made, writer)
    results = [made[key] for key in model.results]
    if model.head:
        total = writer.total("head", "head", [made[key] for key in model.head] + start)
        results.append(writer.scaled("logits", "head", total, 2.0))
    modules = ["", "embed", "head", "layers"]
    for i in range(model.layers):
        modules.append(f"layers.{i}")
        modules += [f"layers.{i}.{shape.name}" for shape in model.shapes]
    return Graph(
        "run",
        tuple(inputs),
        tuple(writer.operations),
        tuple(results),
        (("batch", 1, None),),
        tuple(signature),
        tuple(modules),
    )


def _layer(
    model: Layered, i: int, before: dict[tuple[str, int], str], writer: _Writer
) -> dict[tuple[str, int], str]:
    made: dict[tuple[str, int], str] = {}
    for shape in model.shapes:
        module, name = f"layers.{i}.{shape.name}", f"{shape.name}@{i}"
        values = []
        for read in shape.reads:
            if read.part is None:
                other = model.outer_of and model.outer_of[i]
                values.append("other" if other else model.argument)
            else:
                values.append(
                    (before if read.carried else made)[read.part, read.output]
                )
        own = f"keys.{model.cache_of[i] if model.cache_of else i}"
        cache = {"": "", "r": own, "w": own}.get(shape.cache, "state")
        total = writer.total(name, module, values)
        if shape.cache in ("r", "R"):
            total = writer.total(f"{name}_cached", module, [total, cache])
        elif cache:
            writer.write(f"{name}_write", module, cache, total)
        for k in range(shape.outputs):
            out = f"{name}_out{k}"
            result = writer.scaled(out, module, total, float(k + 2))
            if shape.summed:
                sums, along = "aten.cumsum.default", Reference(result)
                result = writer.run(f"{out}_sums", sums, module, along, 1, tags=())
            made[shape.name, k] = result
    return made


def traced(model: Layered) -> TracedModel:
    return TracedModel(
        target="package.module:function",
        arguments=(),
        model_class="Model",
        device="cpu",
        dtype="float32",
        captured_by="export",
        facts=(),
        fingerprint=(),
        graphs=(graph_of(model),),
    )


def file_of(
    model: Layered,
    on: dict[str, str | list[str]],
    pieces: int | str,
    timeline: str,
    streams: Sequence[str],
) -> ScheduleFile:
    """A schedule over the parts of a model; `timeline` stands below the parts."""
    return understand(
        Source("s.dfs", text_of(model, on, pieces, timeline, streams))
    ).unwrap()


def text_of(
    model: Layered,
    on: dict[str, str | list[str]],
    pieces: int | str,
    timeline: str,
    streams: Sequence[str],
) -> str:
    lines = ["dfs 1", "", "schedule s:"]
    lines += [f"    stream {stream}" for stream in streams]
    if pieces != 1:
        lines.append(f"    split batch into {pieces} as mb")
    lines += ["", "    each layer in .layers.*:"]
    for shape in model.shapes:
        where = on.get(shape.name, "main")
        place = f"[{', '.join(where)}]" if isinstance(where, list) else where
        written = "" if place == "main" else f" on {place}"
        lines.append(f"        part {shape.name}{written} = .{shape.name}")
    lines += ["", *(f"        {line}".rstrip() for line in timeline.split("\n")), ""]
    return "\n".join(lines)


def binding_of(file: ScheduleFile, model: Layered) -> Binding:
    return bind(file.schedules[0], graph_of(model)).unwrap()
