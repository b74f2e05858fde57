"""One class per schedule and entry, and the functions that its parts run."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dynaflow_dsl.bind.kernels import types_of
from dynaflow_dsl.bind.model import AFTER, BEFORE, Binding, BoundKernel, BoundPart
from dynaflow_dsl.emit.functions import FunctionText, write_function
from dynaflow_dsl.emit.interface import (
    class_attributes,
    class_doc,
    method,
    step_doc,
)
from dynaflow_dsl.emit.kernels import KernelNames, write_kernel_call
from dynaflow_dsl.emit.layout import docstring, lay_out, string
from dynaflow_dsl.emit.line_map import MARK
from dynaflow_dsl.emit.steps import Line, StepWriter
from dynaflow_dsl.emit.weights import StandIn, layer_numbers, part_entry
from dynaflow_dsl.plan.model import Plan, Program
from dynaflow_dsl.plan.names import BUILTINS, identifier, spell
from dynaflow_dsl.plan.tensor_names import (
    WeightTable,
    input_names,
    iterations_of,
    tabulate,
)
from dynaflow_dsl.resolve.model import MAIN

# What executors have themselves; a part of this name becomes `part_<name>`, as does one
# whose name starts with an underscore or is a word of Python.
EXECUTOR_NAMES = frozenset(
    {
        "check",
        "capture",
        "device",
        "dimensions",
        "entry",
        "fills",
        "inputs",
        "parameters",
        "parts",
        "run",
        "release",
        "replays",
        "report",
        "schedule",
        "sequential",
        "split",
        "step",
        "stream_names",
        "stream_options",
        "streams",
        "written",
    }
)

MODULE_NAMES = frozenset(
    {
        "Capture",
        "Executor",
        "Part",
        "Split",
        "StreamOptions",
        "TensorSpec",
        "aten",
        "load",
        "loader",
        "torch",
    }
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
        self.kernels = KernelNames(self.new_name)
        # Names of functions by their text without a name.
        self._known: dict[tuple[str, ...], str] = {}

    def executor(self, plan: Plan) -> ExecutorText:
        """One class, with its functions appended to the module's."""
        binding = plan.binding
        schedule, graph = binding.schedule, binding.graph
        name = self.new_name(_camel(schedule.name) + _camel(graph.entry))
        attributes = attribute_names([part.name for part in binding.everything])
        # The step goes through kernels, `sequential` through the text.
        stepped = dict(attributes)
        words = spell(binding, plan.streams)
        split = schedule.split is not None
        prefix = f"{schedule.name}_{graph.entry}_" if self._several else ""
        rows: list[str] = []
        for part in _in_order(binding):
            iterations = iterations_of(part, binding)
            table = tabulate(part, iterations)
            functions = self._functions(part, table, plan, prefix)
            entry = part_entry(part, functions, table, iterations)
            key = f"{string(attributes[part.name])}: "
            rows += lay_out(key, entry, ",", 12)
            bound = next((k for k in binding.kernels if k.part == part.name), None)
            if bound is not None:
                instead = StandIn(
                    self.kernels.name(bound),
                    attributes[part.name],
                    bound.via.kernel.trusted,
                )
                through = self._calls(part, table, plan, prefix, bound, functions)
                entry = part_entry(part, through, table, iterations, instead)
                stepped[part.name] = _beside(attributes, part.name)
                key = f"{string(stepped[part.name])}: "
                rows += lay_out(key, entry, ",", 12)
        arguments = [words.arguments[argument] for argument, _ in graph.signature]
        step = StepWriter(plan, stepped, plan.streams, words, split)
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

    def new_name(self, wanted: str) -> str:
        """A name that nothing at the top of the module has."""
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
        types = types_of(binding.graph)
        names = []
        for number, body in enumerate(part.bodies):
            users = [i for i, inst in enumerate(part.instances) if inst.body == number]
            iterations = iterations_of(part, binding)
            written = partial(
                write_function,
                body=body,
                inputs=input_names(part, number, binding, plan.sequential),
                weights=table.fields[number],
                types=types,
                about=_function_doc(part, users, binding),
                scope=iterations[body.example].path if iterations else "",
                notes=_stated(part.name, binding),
            )
            names.append(self._function(written, f"{prefix}{part.name}"))
        return names

    def _calls(
        self,
        part: BoundPart,
        table: WeightTable,
        plan: Plan,
        prefix: str,
        bound: BoundKernel,
        texts: Sequence[str],
    ) -> list[str]:
        """Functions that call the kernel of a part, one for each of its programs."""
        names = []
        for number, body in enumerate(part.bodies):
            written = partial(
                write_kernel_call,
                kernel=self.kernels.name(bound),
                bound=bound,
                chosen=bound.calls[number] if bound.calls else None,
                body=body,
                inputs=input_names(part, number, plan.binding, plan.sequential),
                weights=table.fields[number],
                text=texts[number],
            )
            names.append(self._function(written, f"{prefix}{part.name}_kernel"))
        return names

    def _function(self, written: Callable[[str], FunctionText], wanted: str) -> str:
        """The name of a function, which is written once however many classes run it."""
        known = self._known.get(text := written("").lines)
        if known is None:
            known = self._known[text] = self.new_name(wanted)
            self.functions.append(written(known))
        return known


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


def _beside(attributes: Mapping[str, str], part: str) -> str:
    """The attribute that calls a part's kernel."""
    name = f"{part}_kernel"
    while name in attributes.values() or not _is_free(name):
        name = f"part_{name}"
    return name


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


def _stated(part: str, binding: Binding) -> list[str]:
    """What the file states of a part and nothing proves."""
    mine = [stated for stated in binding.stated if part in stated.parts]
    reasons = dict.fromkeys(
        refusal.reason
        for stated in mine
        if stated.source == "file"
        for refusal in stated.relied
    )
    named = {name for one in mine if one.source == "plug-in" for name in one.operations}
    declared = sorted({o.operator for o in binding.graph.operations if o.name in named})
    notes = []
    if declared:
        notes.append(
            f"A plug-in declares how {', '.join(declared)} treats rows; `dfsc verify` "
            "checks it by numbers."
        )
    if any(one.source == "target" for one in mine):
        notes.append(
            "Its rows write places of their own into what all pieces share, as the "
            "target says; `dfsc verify` checks it by numbers."
        )
    if not reasons:
        return notes
    first, *others = reasons
    more = f", and {len(others)} more" if others else ""
    return [
        *notes,
        "rowwise = true: that its rows do not depend on each other is stated, and not "
        f"proved: {first}{more}. `dfsc verify` checks it by numbers.",
    ]


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
