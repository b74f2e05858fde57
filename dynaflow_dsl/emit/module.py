"""Proved plans to the text of a module and its map. Cannot fail."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import lcm

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from dynaflow_dsl.bind.model import Binding, BoundPart
from dynaflow_dsl.emit.functions import FunctionText, write_function
from dynaflow_dsl.emit.layout import (
    Bracket,
    Expression,
    call,
    docstring,
    flat,
    lay_out,
    string,
)
from dynaflow_dsl.emit.line_map import (
    MARK,
    operation_lines,
    plan_lines,
    unmark,
    write_map,
)
from dynaflow_dsl.emit.model import Module
from dynaflow_dsl.emit.steps import Line, StepWriter
from dynaflow_dsl.emit.weights import WeightTable, layer_numbers, part_entry, tabulate
from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.graph.model import Graph, Input, TensorType, TracedModel
from dynaflow_dsl.plan.model import (
    Call,
    Choice,
    InputOperand,
    Plan,
    Program,
    Variable,
)
from dynaflow_dsl.prove.model import ProvedPlan
from dynaflow_dsl.resolve.model import MAIN, ScheduleFile
from dynaflow_dsl.resources import folder

# Rises only when emitted text or what it needs of the runtime changes.
MODULE_FORMAT = 1

# What executors have themselves; a part of this name becomes `part_<name>`.
EXECUTOR_NAMES = frozenset(
    {
        "attach",
        "device",
        "entry",
        "inputs",
        "parts",
        "sequential",
        "split",
        "step",
        "stream_names",
        "streams",
    }
)

MODULE_NAMES = frozenset(
    {"Executor", "Part", "Split", "TensorSpec", "aten", "load", "loader", "torch"}
)


@dataclass(frozen=True, slots=True)
class _ExecutorText:
    """Finished strings for one class of the template."""

    name: str
    docstring: str
    attributes: tuple[str, ...]
    step_signature: str
    step_docstring: str
    step: tuple[str, ...]
    sequential_signature: str
    sequential_docstring: str
    sequential: tuple[str, ...]
    parts: tuple[str, ...]


def emit(
    plans: Sequence[ProvedPlan],
    file: ScheduleFile,
    name: str,
    source: str,
    model: TracedModel,
) -> Module:
    """The module `name` with a class per plan; `source` is the file's name in it."""
    writer = _ModuleWriter(several=len(plans) > 1)
    executors = [writer.executor(proved.plan) for proved in plans]
    imports = ["Executor", "Part", "TensorSpec", "loader"]
    if any(p.plan.binding.schedule.split for p in plans):
        imports.insert(2, "Split")
    digests = {
        p.plan.binding.graph.entry: graph_digest(p.plan.binding.graph) for p in plans
    }
    header = " · ".join(
        (
            f"module format {MODULE_FORMAT}",
            f"schedule {file.digest}",
            f"graph {' '.join(digests.values())}",
            f"{model.captured_by}, {model.dtype}, {model.device}",
        )
    )
    marked = _template().render(
        source=source,
        header=header,
        docstring="\n".join(docstring([_about(plans, source)], 0)),
        imports=", ".join(imports),
        executors=executors,
        executor_names=", ".join(executor.name for executor in executors),
        functions=[function.lines for function in writer.functions],
    )
    text, origins = unmark(marked.rstrip("\n") + "\n")
    starts = {
        found.group(1): number
        for number, line in enumerate(text.split("\n"), start=1)
        if (found := re.match(r"def (\w+)\(", line))
    }
    map_text = write_map(
        module=name,
        text=text,
        source=source,
        digest=file.digest,
        graphs=digests,
        model=model,
        lines=plan_lines(origins, writer.lines),
        operations=operation_lines(starts, writer.functions),
        tensors=_tensors(plans),
        parts={},
        format_number=MODULE_FORMAT,
    )
    return Module(name, text, map_text)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(folder("codegen_templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template("module.py.jinja")


def _about(plans: Sequence[ProvedPlan], source: str) -> str:
    schedules = [proved.plan.binding.schedule for proved in plans]
    docs = list(dict.fromkeys(s.doc for s in schedules if s.doc))
    return "\n\n".join(docs) or f"Executor of {source}."


def _tensors(plans: Sequence[ProvedPlan]) -> dict[str, TensorType]:
    return {
        item.name: item.value.type
        for proved in plans
        for item in proved.plan.binding.graph.inputs
        if item.kind in ("parameter", "buffer")
    }


class _ModuleWriter:
    """Collects functions and lines with origins while classes are written."""

    def __init__(self, *, several: bool) -> None:
        self.functions: list[FunctionText] = []
        self.lines: list[Line] = []
        self._taken = set(MODULE_NAMES)
        self._several = several

    def executor(self, plan: Plan) -> _ExecutorText:
        """One class, with its functions appended to the module's."""
        binding = plan.binding
        schedule, graph = binding.schedule, binding.graph
        name = self._new(_camel(schedule.name) + _camel(graph.entry))
        attributes = {
            part.name: f"part_{part.name}" if part.name in EXECUTOR_NAMES else part.name
            for part in _parts(binding)
        }
        index = schedule.split.index if schedule.split else None
        prefix = f"{schedule.name}_{graph.entry}_" if self._several else ""
        rows: list[str] = []
        for part in _parts(binding):
            table = tabulate(part, binding.iterations)
            functions = self._functions(part, table, plan, prefix)
            entry = part_entry(part, functions, table, binding.iterations)
            key = f"{string(attributes[part.name])}: "
            rows += lay_out(key, entry, ",", 12)
        arguments = [argument for argument, _ in graph.signature]
        return _ExecutorText(
            name,
            "\n".join(docstring([_class_doc(plan)], 4)),
            tuple(_attributes(plan)),
            _method("step", arguments),
            '        """One step as scheduled."""',
            self._body(StepWriter(plan, attributes, plan.streams, index), plan.step),
            _method("sequential", arguments),
            '        """The same parts in program order on one stream, unsplit."""',
            self._body(StepWriter(plan, attributes, (MAIN,), None), plan.sequential),
            tuple(rows),
        )

    def _new(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def _body(self, writer: StepWriter, program: Program) -> tuple[str, ...]:
        texts = []
        for line in writer.program(program):
            mark = ""
            if line.span is not None:
                mark = f"{MARK}{len(self.lines)}"
                self.lines.append(line)
            texts.append(line.text + mark)
        return tuple(texts)

    def _functions(
        self, part: BoundPart, table: WeightTable, plan: Plan, prefix: str
    ) -> list[str]:
        binding = plan.binding
        inputs = _parameter_names(part, plan)
        types = _types(binding.graph)
        names = []
        for number, body in enumerate(part.bodies):
            users = [i for i, inst in enumerate(part.instances) if inst.body == number]
            repeated = part in binding.parts
            scope = binding.iterations[users[0]].path if repeated else ""
            function = write_function(
                self._new(f"{prefix}{part.name}"),
                body,
                inputs,
                table.fields[number],
                types,
                _function_doc(part, users, binding)
                if repeated
                else f"What runs {part.name} the parts, on the whole batch.",
                scope,
            )
            self.functions.append(function)
            names.append(function.name)
        return names


def _parts(binding: Binding) -> list[BoundPart]:
    candidates = (binding.before, *binding.parts, binding.after)
    return [part for part in candidates if part is not None]


def _types(graph: Graph) -> Mapping[str, TensorType]:
    types = {item.name: item.value.type for item in graph.inputs}
    for operation in graph.operations:
        for value in operation.results:
            if value is not None:
                types[value.name] = value.type
    return types


def _parameter_names(part: BoundPart, plan: Plan) -> list[str]:
    """Names of a function's inputs: those of its call in the sequential program."""
    program = plan.sequential
    for block in (*program.first, *program.loop, *program.last):
        for statement in block.statements:
            if isinstance(statement, Call) and statement.part == part.name:
                return [_operand_name(operand) for operand in statement.operands]
    raise AssertionError(f"{part.name} is never called")


def _operand_name(operand: Variable | InputOperand | Choice) -> str:
    match operand:
        case Variable(name) | InputOperand(name):
            return name
        case Choice(options):
            return options[0].name


def _function_doc(part: BoundPart, users: Sequence[int], binding: Binding) -> str:
    numbers = layer_numbers([binding.iterations[i] for i in users])
    each = binding.schedule.each
    if numbers is None:
        where = f"{len(users)} modules"
    elif len(numbers) == 1:
        where = f"{each.name} {numbers[0]}"
    elif numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        where = f"{each.name}s {numbers[0]} to {numbers[-1]}"
    else:
        where = f"{each.name}s {', '.join(map(str, numbers))}"
    selector = next(p.selector.span.text for p in each.parts if p.name == part.name)
    return f"{part.name}, {where}: {' '.join(selector.split())}"


def _camel(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _class_doc(plan: Plan) -> str:
    schedule, graph = plan.binding.schedule, plan.binding.graph
    doc = f"{schedule.name}, entry {graph.entry}."
    split = schedule.split
    if split is not None:
        doc += f"\n\n{split.dimension} in {len(split.weights)} pieces"
        doc += f", streams {', '.join(plan.streams)}."
    elif len(plan.streams) > 1:
        doc += f"\n\nStreams {', '.join(plan.streams)}."
    return doc


def _method(name: str, arguments: Sequence[str]) -> str:
    return "\n".join(lay_out("def ", call(name, ["self", *arguments]), ":", 4))


def _attributes(plan: Plan) -> list[str]:
    binding = plan.binding
    graph, split = binding.graph, binding.schedule.split
    lines = [f"    entry = {string(graph.entry)}"]
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
