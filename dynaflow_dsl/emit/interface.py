"""What a class says about itself: documentation, inputs, split and streams."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from dynaflow_dsl.emit.layout import Bracket, Expression, call, flat, lay_out, string
from dynaflow_dsl.graph.model import Input, TensorType
from dynaflow_dsl.plan.model import Plan
from dynaflow_dsl.resolve.model import Value
from dynaflow_dsl.resolve.values import decimal


def class_doc(plan: Plan) -> str:
    """Schedule, entry, pieces and streams."""
    schedule, graph = plan.binding.schedule, plan.binding.graph
    doc = f"{schedule.name}, entry {graph.entry}."
    split = schedule.split
    if split is not None:
        doc += f"\n\n{split.dimension} in {len(split.weights)} pieces"
        doc += f", streams {', '.join(plan.streams)}."
    elif len(plan.streams) > 1:
        doc += f"\n\nStreams {', '.join(plan.streams)}."
    return doc


def method(name: str, arguments: Sequence[str]) -> str:
    """The head of a method."""
    return "\n".join(lay_out("def ", call(name, ["self", *arguments]), ":", 4))


def class_attributes(plan: Plan) -> list[str]:
    """Lines of the class variables."""
    binding = plan.binding
    graph, split = binding.graph, binding.schedule.split
    lines = [f"    entry = {string(graph.entry)}"]
    parameters = binding.schedule.parameters
    if parameters:
        values = tuple(
            _keyed(f"{string(each.name)}: ", _literal(each.value))
            for each in parameters
        )
        lines += lay_out("", Bracket("parameters = ", "{", values), "", 4)
    rows: list[str] = ["    inputs = {"]
    by_argument: dict[int, list[Input]] = {}
    for item in graph.inputs:
        if item.argument is not None:
            by_argument.setdefault(item.argument, []).append(item)
    for position, (name, count) in enumerate(graph.signature):
        specs = [_spec(item.value.type) for item in by_argument.get(position, [])]
        rows += _input_row(string(name), specs, count)
    lines += [*rows, "    }"]
    if split is not None:
        weights = [str(w) for w in _whole_numbers(split.weights)]
        arguments: list[Expression] = [
            string(split.dimension),
            Bracket("weights=", "(", tuple(weights)),
        ]
        if split.align > 1:
            arguments.append(f"align={split.align}")
        lines += lay_out("split = ", call("Split", arguments), "", 4)
    if len(plan.streams) > 1:
        names = tuple(map(string, plan.streams[1:]))
        lines += lay_out("", Bracket("stream_names = ", "(", names), "", 4)
    return lines


def _literal(value: Value) -> Expression:
    """A parameter's value in Python; a decimal keeps all its digits."""
    match value:
        case bool() | int():
            return repr(value)
        case Fraction():
            return decimal(value)
        case str():
            return string(value)
        case tuple():
            return Bracket("", "[", tuple(map(_literal, value)))


def _keyed(key: str, value: Expression) -> Expression:
    match value:
        case str():
            return f"{key}{value}"
        case Bracket(_, opening, items):
            return Bracket(key, opening, items)


def _input_row(key: str, specs: Sequence[Bracket], count: int | None) -> list[str]:
    if count is None:
        return lay_out(f"{key}: ", specs[0], ",", 8)
    if count and len({str(spec) for spec in specs}) == 1:
        return [f"        {key}: [{flat(specs[0])}] * {count},"]
    return lay_out("", Bracket(f"{key}: ", "[", tuple(specs)), ",", 8)


def _spec(type_: TensorType) -> Bracket:
    shape: list[Expression] = []
    for size in type_.shape:
        shape.append(string(str(size)) if size.dimensions else str(size.factor))
    return call("TensorSpec", [string(type_.dtype), *shape])


def _whole_numbers(weights: Sequence[Fraction]) -> list[int]:
    """The same proportions in whole numbers: cuts depend on nothing else."""
    scale = lcm(*(weight.denominator for weight in weights))
    return [int(weight * scale) for weight in weights]
