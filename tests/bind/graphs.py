"""Small graphs and schedules, written as text.

A graph has one statement a line; values are `name` or `name:type`, see TYPES:

    input x keys.0             step inputs; `keys.0` is a tensor of the list `keys`
    weight w                   a parameter; `buffer b` likewise
    y = relu(x) @ layers.0.a   an operation in a module; without `@` in the model itself
    v = ~view(y)               a view: its result shares the memory of its first operand
    r = ?reshape(y)            may be a view: shares memory, yet is an operation
    p, _ = topk(x)             several results; nobody reads `_`
    add_(x, y)                 in place: writes its first operand
    s = all_reduce(x, sum, tp) words that are no values are texts
    a = ns.op.overload(x)      an operator outside of aten
    return y x
    phases decode prefill      those of the batch
    disjoint pool              inputs in which rows keep apart

Behind the module may stand, in this order, `marked a,b`, `by package.f,package.g` (the
functions that it ran in) and `line 7`. An operation is called like its first result, or
else by its line (`line7`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from dynaflow_dsl.bind import Binding, BoundPart, bind
from dynaflow_dsl.diagnostics import Diagnostic, Result
from dynaflow_dsl.graph.model import (
    Argument,
    Graph,
    Input,
    Operation,
    Reference,
    Size,
    SourceLine,
    TensorType,
    Value,
)
from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.resolve.model import Schedule
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse

BATCH = Size(1, ("batch",))


def _type(*shape: Size) -> TensorType:
    strides = [Size(1)]
    for size in shape[:0:-1]:
        strides.insert(0, strides[0] * size)
    return TensorType(shape, tuple(strides[: len(shape)]), "float32")


TYPES = {
    "rows": _type(BATCH, Size(4)),
    "wide": _type(BATCH, Size(8)),
    "fixed": _type(Size(4)),
    "turned": _type(Size(4), BATCH),
    "square": _type(BATCH, BATCH),
    "flat": _type(Size(4, ("batch",))),
    "sixteen": _type(Size(16, ("batch",)), Size(4)),
}
POINTWISE = {"relu", "add.Tensor", "mul.Tensor", "add_.Tensor", "copy_"}
CALL = re.compile(
    r"(?:(?P<results>.+?) = )?(?P<kind>[~?]?)(?P<operator>[\w.]+)\((?P<operands>.*?)\)"
    r"(?: @ (?P<module>\S+))?(?: marked (?P<marks>\S+))?"
    r"(?: by (?P<functions>\S+))?(?: line (?P<line>\d+))?"
)


@dataclass(slots=True)
class _Builder:
    modules: list[str]
    inputs: list[Input] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    phases: tuple[str, ...] = ()
    storages: int = 0

    def value(self, text: str, like: Value | None, shared: bool) -> Value | None:
        name, _, type_ = text.partition(":")
        if name == "_":
            return None
        found = like.type if like is not None and not type_ else TYPES[type_ or "rows"]
        storage = like.storage if like is not None and shared else self.storages
        self.storages += 1
        self.values[name] = Value(name, found, storage)
        return self.values[name]

    def add_input(self, text: str, kind: str) -> None:
        value = self.value(text, None, shared=False)
        assert value is not None
        step = kind == "step"
        position = sum(item.argument is not None for item in self.inputs)
        self.inputs.append(
            Input(value.name, kind, value, position if step else None)  # type: ignore[arg-type]
        )

    def add_operation(self, line: str, number: int) -> None:
        call = CALL.fullmatch(line)
        assert call is not None, line
        operands = [text for text in call["operands"].split(", ") if text]
        names = [text for text in operands if text in self.values]
        like = self.values[names[0]] if names else None
        results = [
            self.value(text, like, bool(call["kind"]))
            for text in (call["results"] or "").split(", ")
            if text
        ]
        operator = call["operator"]
        if operator.count(".") < 2:
            operator = f"aten.{operator}{'' if '.' in operator else '.default'}"
        in_place = operator.split(".")[1].endswith("_")
        named = [value.name for value in results if value is not None]
        self.modules.append(call["module"] or "")
        self.operations.append(
            Operation(
                name=named[0] if named else f"line{number}",
                operator=operator,
                arguments=tuple(map(self.argument, operands)),
                keywords=(),
                results=tuple(results),
                multiple=len(results) > 1,
                writes=(names[0],) if in_place else (),
                view=call["kind"] == "~",
                tags=("pointwise",) if call["operator"] in POINTWISE else (),
                module=call["module"] or "",
                source=SourceLine("m.py", int(call["line"]), "code")
                if call["line"]
                else None,
                functions=_names(call["functions"]),
                marks=_names(call["marks"]),
            )
        )

    def argument(self, text: str) -> Argument:
        if text in self.values:
            return Reference(text)
        # Texts stand without quotes: `all_reduce(x, sum, tp)`.
        return int(text) if text.lstrip("-").isdigit() else text


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def graph(text: str, modules: Sequence[str] = ()) -> Graph:
    """The graph of a text; `modules` are those in which nothing runs."""
    builder = _Builder(["", *modules])
    kinds = {"input": "step", "weight": "parameter", "buffer": "buffer"}
    lines = filter(None, map(str.strip, text.splitlines()))
    for number, line in enumerate(lines, 1):
        word, *names = line.split()
        if word in kinds:
            for name in names:
                builder.add_input(name, kinds[word])
        elif word == "phases":
            builder.phases = tuple(names)
        elif word == "disjoint":
            builder.inputs = [
                replace(item, disjoint=item.disjoint or item.name in names)
                for item in builder.inputs
            ]
        elif word == "return":
            builder.outputs = tuple(names)
        else:
            builder.add_operation(line, number)
    lists = [i.name for i in builder.inputs if i.argument is not None]
    return Graph(
        entry="run",
        inputs=tuple(builder.inputs),
        operations=tuple(builder.operations),
        outputs=builder.outputs,
        dimensions=(("batch", 1, None),),
        signature=tuple((name, None) for name in lists),
        modules=tuple(dict.fromkeys(_with_parents(builder.modules))),
        phases=(("batch", builder.phases),) if builder.phases else (),
    )


def _with_parents(paths: Iterable[str]) -> Iterable[str]:
    for path in paths:
        segments = path.split(".") if path else []
        yield from (".".join(segments[:n]) for n in range(len(segments) + 1))


def repeat(layer: str, count: int) -> str:
    """The lines of `count` layers: `%i` is the layer's number, `%n` the next one's."""
    return "\n".join(
        layer.strip().replace("%i", str(i)).replace("%n", str(i + 1))
        for i in range(count)
    )


def schedule(parts: str, each: str = ".layers.*", split: str = "") -> Schedule:
    """A schedule of `NAME = SELECTOR` lines, issued one after the other.

    `each` is the path, with what may follow it in the line of an `each`.
    """
    lines = [line.strip() for line in parts.strip().splitlines()]
    indent = "\n        "
    text = f"""dfs 1

schedule tried:
    {split}
    each layer in {each}:
        {indent.join(f"part {line}" for line in lines)}

        order:
            {f"{indent}    ".join(line.split()[0] for line in lines)}
"""
    tree = parse(Source("tried.dfs", text)).unwrap()
    return resolve(tree).unwrap().schedules[0]


SPLIT = "split batch into 2 as half"


def attempt(
    parts: str, made: Graph, each: str = ".layers.*", split: str = ""
) -> Result[Binding]:
    """What `bind` answers."""
    return bind(schedule(parts, each, split), made)


def bound(parts: str, made: Graph, each: str = ".layers.*", split: str = "") -> Binding:
    """The binding; no diagnostic is allowed."""
    result = attempt(parts, made, each, split)
    assert result.diagnostics == ()
    assert result.value is not None
    return result.value


def fault(
    parts: str, made: Graph, each: str = ".layers.*", split: str = ""
) -> Diagnostic:
    """The one diagnostic of a schedule that does not fit."""
    result = attempt(parts, made, each, split)
    assert result.value is None
    (diagnostic,) = result.diagnostics
    return diagnostic


def marked(diagnostic: Diagnostic) -> str:
    """The text that a diagnostic points at."""
    assert diagnostic.primary is not None
    return diagnostic.primary.span.text


def part(binding: Binding, name: str) -> BoundPart:
    """A part by its name, `before` and `after` included."""
    return next(part for part in binding.everything if part.name == name)


def held(binding: Binding, name: str) -> list[str]:
    """Names of operations of a part, a text for each iteration."""
    found = next((part for part in binding.everything if part.name == name), None)
    return [] if found is None else [" ".join(i.operations) for i in found.instances]
