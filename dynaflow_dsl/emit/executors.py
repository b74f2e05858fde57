"""One class per schedule and entry, and the functions that its parts run."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.model import AFTER, BEFORE, Binding, BoundPart, Iteration
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
    Loop,
    Operand,
    PieceOf,
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
        attributes = attribute_names([part.name for part in binding.everything])
        words = spell(binding, plan.streams)
        split = schedule.split is not None
        prefix = f"{schedule.name}_{graph.entry}_" if self._several else ""
        rows: list[str] = []
        for part in _in_order(binding):
            iterations = _iterations(part, binding)
            table = tabulate(part, iterations)
            functions = self._functions(part, table, plan, prefix)
            entry = part_entry(part, functions, table, iterations)
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
        types = _types(binding.graph)
        names = []
        for number, body in enumerate(part.bodies):
            users = [i for i, inst in enumerate(part.instances) if inst.body == number]
            iterations = _iterations(part, binding)
            function = write_function(
                self._new(f"{prefix}{part.name}"),
                body,
                _parameter_names(part, number, plan),
                table.fields[number],
                types,
                _function_doc(part, users, binding),
                iterations[users[0]].path if iterations else "",
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


def _in_order(binding: Binding) -> list[BoundPart]:
    """All parts; the gap stands before the parts of the section that needs it first."""
    if binding.gaps is None:
        return list(binding.everything)
    first = binding.gaps.places[0].section
    parts = [part for part in binding.everything if part is not binding.gaps.part]
    place = parts.index(binding.sections[first].parts[-1]) + 1
    return [*parts[:place], binding.gaps.part, *parts[place:]]


def _iterations(part: BoundPart, binding: Binding) -> tuple[Iteration, ...]:
    """The modules that a part runs for; none for what lies outside the sections."""
    for section in binding.sections:
        if any(one is part for one in section.parts):
            return section.iterations
    return ()


def _types(graph: Graph) -> Mapping[str, TensorType]:
    types = {item.name: item.value.type for item in graph.inputs}
    for operation in graph.operations:
        for value in operation.results:
            if value is not None:
                types[value.name] = value.type
    return types


def _parameter_names(part: BoundPart, body: int, plan: Plan) -> list[str]:
    """Names of a function's inputs: those of its call in the sequential program."""
    named: list[str] = []
    for segment in plan.sequential.segments:
        first = segment.start if isinstance(segment, Loop) else 0
        for block in segment.blocks:
            for statement in block.statements:
                if isinstance(statement, Call) and statement.part == part.name:
                    names = [_operand_name(o) for o in statement.operands]
                    number = statement.layer.at(first)
                    if part.roles or part.instances[number].body == body:
                        return names
                    named = named or names
    assert named, f"{part.name} is never called"
    return named


def _operand_name(operand: Operand) -> str:
    match operand:
        case Variable(name) | InputOperand(name) | PieceOf(name):
            return name
        case Choice(options):
            return options[0].name


def _function_doc(part: BoundPart, users: Sequence[int], binding: Binding) -> str:
    if part.name in (BEFORE, AFTER):
        return f"What runs {part.name} the parts, on the whole batch."
    if binding.gaps is not None and part is binding.gaps.part:
        places = [binding.gaps.places[n] for n in users]
        (section, *others) = dict.fromkeys(place.section for place in places)
        at = "" if others else _where([p.iteration for p in places], section, binding)
        return f"gap: what lies {f'before {at}' if at else 'between the iterations'}"
    section = next(
        n for n, one in enumerate(binding.sections) if any(p is part for p in one.parts)
    )
    where = _where(users, section, binding)
    selector = next(
        p.selector.span for p in binding.schedule.parts if p.name == part.name
    )
    return f"{part.name}{where and f', {where}'}: {selector.phrase}"


def _where(users: Sequence[int], section: int, binding: Binding) -> str:
    """`layers 0 to 7`; nothing outside an `each`."""
    bound = binding.sections[section]
    if not bound.word:
        return ""
    numbers = layer_numbers([bound.iterations[i] for i in users])
    if numbers is None:
        return f"{len(users)} modules"
    if len(numbers) == 1:
        return f"{bound.word} {numbers[0]}"
    if numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"{bound.word}s {numbers[0]} to {numbers[-1]}"
    return f"{bound.word}s {', '.join(map(str, numbers))}"


def _camel(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))
