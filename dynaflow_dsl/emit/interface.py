"""What a class says about itself: documentation, inputs, split and streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

from dynaflow_dsl.bind.capture import by_address
from dynaflow_dsl.bind.communicators import alike, alike_in_kernels
from dynaflow_dsl.bind.model import Binding
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
        doc += f"\n\n{split.dimension} in {len(split.pieces)} pieces"
        if split.phases:
            doc += f" ({', '.join(split.pieces)})"
        doc += f", streams {', '.join(plan.streams)}."
    elif len(plan.streams) > 1:
        doc += f"\n\nStreams {', '.join(plan.streams)}."
    for part, count in plan.buffers.items():
        turns = f"{count} buffers in turn" if count > 1 else "one buffer"
        doc += f"\n\n{part} brings weights from host memory to {turns}."
    return doc


def method(name: str, arguments: Sequence[str]) -> str:
    """The head of a method."""
    return "\n".join(lay_out("def ", call(name, ["self", *arguments]), ":", 4))


def class_attributes(plan: Plan, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Lines of the class variables.

    `groups` are the process groups of the parts that have collectives.
    """
    binding = plan.binding
    graph, split = binding.graph, binding.schedule.split
    lines = [
        f"    schedule = {string(binding.schedule.name)}",
        f"    entry = {string(graph.entry)}",
    ]
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
    bounds: list[Expression] = [
        Bracket(f"{string(name)}: ", "(", (repr(low), repr(high)))
        for name, low, high in graph.dimensions
    ]
    if bounds:
        lines += lay_out("", Bracket("dimensions = ", "{", tuple(bounds)), "", 4)
    if written := _written(binding):
        names = tuple(map(string, written))
        lines += lay_out("", Bracket("written = ", "(", names), "", 4)
    if graph.phases:
        named: list[Expression] = [
            Bracket(f"{string(name)}: ", "(", tuple(map(string, phases)))
            for name, phases in graph.phases
        ]
        lines += lay_out("", Bracket("phases = ", "{", tuple(named)), "", 4)
    if split is not None and split.phases:
        pieces = Bracket("", "(", tuple(map(string, split.pieces)))
        by_phase = call("PhaseSplit", [string(split.dimension), pieces])
        lines += lay_out("split = ", by_phase, "", 4)
    elif split is not None:
        weights = [str(w) for w in _whole_numbers(split.weights)]
        arguments: list[Expression] = [
            string(split.dimension),
            Bracket("weights=", "(", tuple(weights)),
        ]
        if split.align > 1:
            arguments.append(f"align={split.align}")
        lines += lay_out("split = ", call("Split", arguments), "", 4)
    if graph.context and split is not None:
        lines.append("    needs_context = True")
    if len(plan.streams) > 1:
        names = tuple(map(string, plan.streams[1:]))
        lines += lay_out("", Bracket("stream_names = ", "(", names), "", 4)
    if options := _stream_options(plan):
        lines += lay_out("", Bracket("stream_options = ", "{", options), "", 4)
    if groups:
        communicating: list[Expression] = [
            Bracket(f"{string(name)}: ", "(", tuple(map(string, listed)))
            for name, listed in groups.items()
        ]
        by_part = Bracket("groups = ", "{", tuple(communicating))
        lines += lay_out("", by_part, "", 4)
        roles = {
            name.partition(":")[0] for listed in groups.values() for name in listed
        }
        same = {name for role in roles for name in alike(graph, role)}
        same |= alike_in_kernels(binding)
        if known := [string(name) for name, *_ in graph.dimensions if name in same]:
            lines += lay_out("", Bracket("alike = ", "(", tuple(known)), "", 4)
    if binding.schedule.captures:
        lines += lay_out("capture = ", _capture(binding), "", 4)
    return lines


def _stream_options(plan: Plan) -> tuple[Expression, ...]:
    """One entry for each stream that differs from a plain one."""
    found: list[Expression] = []
    for stream in plan.binding.schedule.streams:
        options = []
        if stream.priority != "normal":
            options.append(f"priority={string(stream.priority)}")
        if stream.sms is not None:
            options.append(f"sms={stream.sms}")
        if stream.gemm_sms is not None:
            options.append(f"gemm_sms={stream.gemm_sms}")
        if options:
            key = f"{string(stream.name)}: "
            found.append(_keyed(key, call("StreamOptions", options)))
    return tuple(found)


def _capture(binding: Binding) -> Bracket:
    """`Capture({"batch": (64, 128)}, in_place=("keys",), padding={"batch": (0,)})`."""
    captures = binding.schedule.captures
    sizes: list[Expression] = [
        Bracket(f"{string(line.dimension)}: ", "(", tuple(map(str, line.sizes)))
        for line in captures
    ]
    arguments: list[Expression] = [Bracket("", "{", tuple(sizes))]
    split = binding.schedule.split
    if split is not None and split.phases:
        cut = Bracket(
            f"{string(split.dimension)}: ", "(", tuple(map(string, split.pieces))
        )
        arguments.append(Bracket("phases=", "{", (cut,)))
    if names := tuple(map(string, by_address(binding.graph))):
        arguments.append(Bracket("in_place=", "(", names))
    if binding.output_rows:
        rows: list[Expression] = [
            Bracket(f"{string(name)}: ", "(", tuple(map(repr, axes)))
            for name, axes in binding.output_rows.items()
        ]
        arguments.append(Bracket("padding=", "{", tuple(rows)))
    arguments += [
        f"{name}=True" for name in ("static", "pieces") if getattr(captures[0], name)
    ]
    return call("Capture", arguments)


def _written(binding: Binding) -> list[str]:
    """Arguments that the step writes in place, in the order of the signature."""
    names = {
        name
        for part in binding.everything
        for instance in part.instances
        for name, writes in instance.touched
        if writes
    }
    heads = {item.name for item in binding.graph.inputs if item.name in names}
    return [
        argument
        for argument, count in binding.graph.signature
        if argument in heads
        or (count is not None and any(h.startswith(f"{argument}.") for h in heads))
    ]


def step_doc(plan: Plan) -> list[str]:
    """What a reader of `step` has to know beside its text."""
    lines = ["One step as scheduled."]
    if plan.binding.schedule.split is not None:
        lines.append(
            "With too few rows for one in every piece, `sequential` runs instead."
        )
        if plan.binding.schedule.split.phases:
            lines.append("`phases` holds the number of rows of each phase.")
    if len(plan.streams) > 1:
        lines.append(
            "What has no `del` goes where its name is given away, or when the step\n"
            "returns, after the join."
        )
    return lines if len(lines) == 1 else [lines[0], "", *lines[1:]]


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
        case Bracket(head, opening, items):
            return Bracket(f"{key}{head}", opening, items)


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
