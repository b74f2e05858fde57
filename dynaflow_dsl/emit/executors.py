"""One class per schedule and entry, and the functions that its parts run."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.model import Binding, BoundPart
from dynaflow_dsl.emit.functions import FunctionText, write_function
from dynaflow_dsl.emit.interface import (
    class_attributes,
    class_doc,
    method,
    step_doc,
)
from dynaflow_dsl.emit.layout import docstring, lay_out, string
from dynaflow_dsl.emit.line_map import MARK
from dynaflow_dsl.emit.steps import Line, StepWriter
from dynaflow_dsl.emit.weights import WeightTable, layer_numbers, part_entry, tabulate
from dynaflow_dsl.graph.model import Graph, TensorType
from dynaflow_dsl.plan.model import (
    Call,
    Choice,
    InputOperand,
    Plan,
    Program,
    Variable,
)
from dynaflow_dsl.plan.names import BUILTINS, identifier, spell
from dynaflow_dsl.resolve.model import MAIN

# What executors have themselves; a part of this name becomes `part_<name>`, as does one
# whose name starts with an underscore or is a word of Python.
EXECUTOR_NAMES = frozenset(
    {
        "attach",
        "device",
        "dimensions",
        "entry",
        "inputs",
        "parameters",
        "parts",
        "schedule",
        "sequential",
        "split",
        "step",
        "stream_names",
        "streams",
        "written",
    }
)

MODULE_NAMES = frozenset(
    {"Executor", "Part", "Split", "TensorSpec", "aten", "load", "loader", "torch"}
)


@dataclass(frozen=True, slots=True)
class ExecutorText:
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


class ModuleWriter:
    """Collects functions and lines with origins while classes are written."""

    def __init__(self, *, several: bool) -> None:
        self.functions: list[FunctionText] = []
        self.lines: list[Line] = []
        # A function of a builtin's name would hide it in the whole module.
        self._taken = set(MODULE_NAMES | BUILTINS)
        self._several = several

    def executor(self, plan: Plan) -> ExecutorText:
        """One class, with its functions appended to the module's."""
        binding = plan.binding
        schedule, graph = binding.schedule, binding.graph
        name = self._new(_camel(schedule.name) + _camel(graph.entry))
        attributes = attribute_names([part.name for part in _parts(binding)])
        words = spell(binding, plan.streams)
        split = schedule.split is not None
        prefix = f"{schedule.name}_{graph.entry}_" if self._several else ""
        rows: list[str] = []
        for part in _parts(binding):
            table = tabulate(part, binding.iterations)
            functions = self._functions(part, table, plan, prefix)
            entry = part_entry(part, functions, table, binding.iterations)
            key = f"{string(attributes[part.name])}: "
            rows += lay_out(key, entry, ",", 12)
        arguments = [words.arguments[argument] for argument, _ in graph.signature]
        step = StepWriter(plan, attributes, plan.streams, words, split)
        sequential = StepWriter(plan, attributes, (MAIN,), words, split=False)
        return ExecutorText(
            name,
            "\n".join(docstring([class_doc(plan)], 4)),
            tuple(class_attributes(plan)),
            method("step", arguments),
            "\n".join(docstring(step_doc(plan), 8)),
            self._body(step, plan.step),
            method("sequential", arguments),
            '        """The same parts in program order on one stream, unsplit."""',
            self._body(sequential, plan.sequential),
            tuple(rows),
        )

    def _new(self, wanted: str) -> str:
        wanted = identifier(wanted)
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


def attribute_names(parts: Sequence[str]) -> dict[str, str]:
    """The attribute of an executor that calls each part."""
    names = {name: name for name in parts if _is_free(name)}
    for name in parts:
        attribute = name
        while name not in names and (
            not _is_free(attribute) or attribute in names.values()
        ):
            attribute = f"part_{attribute}"
        names.setdefault(name, attribute)
    return names


def _is_free(name: str) -> bool:
    taken = name in EXECUTOR_NAMES or keyword.iskeyword(name)
    return not taken and not name.startswith("_")


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
    each = binding.schedule.sections[0].each
    if numbers is None:
        where = f"{len(users)} modules"
    elif len(numbers) == 1:
        where = f"{each.name} {numbers[0]}"
    elif numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        where = f"{each.name}s {numbers[0]} to {numbers[-1]}"
    else:
        where = f"{each.name}s {', '.join(map(str, numbers))}"
    selector = next(
        p.selector.span.text for p in binding.schedule.parts if p.name == part.name
    )
    return f"{part.name}, {where}: {' '.join(selector.split())}"


def _camel(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))
