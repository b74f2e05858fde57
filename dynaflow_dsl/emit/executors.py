"""One class per schedule and entry, and the functions that its parts run."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.communicators import communicators, streams_of
from dynaflow_dsl.bind.kernels import values_of
from dynaflow_dsl.bind.model import (
    Binding,
    BoundPart,
)
from dynaflow_dsl.bind.uses import groups_of_kernel
from dynaflow_dsl.emit.inside import (
    module_rows,
    plain_table,
    table_with_loops,
)
from dynaflow_dsl.emit.interface import (
    class_attributes,
    class_doc,
    method,
    step_doc,
)
from dynaflow_dsl.emit.layout import docstring, lay_out, string
from dynaflow_dsl.emit.line_map import MARK
from dynaflow_dsl.emit.part_functions import FunctionWriter
from dynaflow_dsl.emit.steps import Line, StepWriter
from dynaflow_dsl.emit.weights import StandIn, fetch_entry, part_entry
from dynaflow_dsl.emit.writing import Writing, writings
from dynaflow_dsl.plan.model import Plan, Program
from dynaflow_dsl.plan.names import PHASES, spell
from dynaflow_dsl.plan.tensor_names import (
    iterations_of,
)
from dynaflow_dsl.resolve.model import MAIN

# What executors have themselves; a part of this name becomes `part_<name>`, as does one
# whose name starts with an underscore or is a word of Python.
EXECUTOR_NAMES = frozenset(
    {
        "alike",
        "arrange",
        "assumed_phases",
        "buffers",
        "buffers_of",
        "capture",
        "compare_no_kernels",
        "context",
        "device",
        "dimensions",
        "entry",
        "fetches",
        "fills",
        "groups",
        "inputs",
        "named_sizes",
        "needs_context",
        "parameters",
        "parts",
        "phases",
        "run",
        "runs_unsplit",
        "release",
        "replay",
        "replays",
        "report",
        "schedule",
        "sequential",
        "sizes_of",
        "split",
        "step",
        "stream_names",
        "stream_options",
        "streams",
        "uncaptured",
        "written",
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
    fetches: tuple[str, ...]


class ModuleWriter:
    """Collects functions and lines with origins while classes are written."""

    def __init__(self, *, several: bool) -> None:
        self.functions = FunctionWriter()
        self.lines: list[Line] = []
        self._several = several

    def executor(self, plan: Plan) -> ExecutorText:
        """One class, with its functions appended to the module's."""
        binding = plan.binding
        schedule, graph = binding.schedule, binding.graph
        name = self.functions.new_name(_camel(schedule.name) + _camel(graph.entry))
        attributes = attribute_names([part.name for part in binding.everything])
        # The step goes through kernels, `sequential` through the text.
        stepped = dict(attributes)
        words = spell(binding, plan.streams)
        split = schedule.split is not None
        prefix = f"{schedule.name}_{graph.entry}_" if self._several else ""
        values = values_of(graph)
        kinds = writings(plan.step)
        writing: dict[Writing, str] = {}
        rows: list[str] = []
        fetches: list[str] = []
        groups: dict[str, Sequence[str]] = {}
        for part in _in_order(binding):
            iterations = iterations_of(part, binding)
            if part.fetches:
                key = f"{string(attributes[part.name])}: "
                weights = plain_table(part, iterations).weights
                count = plan.buffers[part.name]
                entry = fetch_entry(part, weights, iterations, count)
                fetches += lay_out(key, entry, ",", 12)
                continue
            if named := communicators(part, binding):
                groups[attributes[part.name]] = named
            bound = next((k for k in binding.kernels if k.part == part.name), None)
            table = (
                table_with_loops(part, iterations, values)
                if bound is None
                else plain_table(part, iterations)
            )
            functions = self.functions.of_part(part, table, plan, prefix)
            rows_inside = module_rows(part, table, iterations)
            into: dict[str, tuple[Sequence[str], Sequence[int]]] = {}
            for results in kinds.get(part.name, ()):
                attribute = _beside([*attributes.values(), *into], part.name, "into")
                writing[part.name, results] = attribute
                into[attribute] = (
                    self.functions.of_writing(part, results, plan, prefix, functions),
                    results,
                )
            entry = part_entry(
                part, functions, table.weights, iterations, rows_inside, into=into
            )
            key = f"{string(attributes[part.name])}: "
            rows += lay_out(key, entry, ",", 12)
            if bound is not None:
                instead = StandIn(
                    self.functions.kernels.name(bound),
                    attributes[part.name],
                    bound.via.kernel.trusted,
                )
                weights = table.weights
                through = self.functions.of_kernel(
                    part, weights, plan, prefix, bound, functions
                )
                entry = part_entry(part, through, weights, iterations, (), instead)
                stepped[part.name] = _beside(attributes.values(), part.name, "kernel")
                if named := groups_of_kernel(
                    bound, part.bodies, streams_of(part, binding)
                ):
                    groups[stepped[part.name]] = named
                key = f"{string(stepped[part.name])}: "
                rows += lay_out(key, entry, ",", 12)
        arguments = [words.arguments[argument] for argument, _ in graph.signature]
        by_phase = schedule.split is not None and bool(schedule.split.phases)
        step = StepWriter(plan, stepped, writing, plan.streams, words, split)
        sequential = StepWriter(plan, attributes, {}, (MAIN,), words, split=False)
        return ExecutorText(
            name,
            "\n".join(docstring([class_doc(plan)], 4)),
            tuple(class_attributes(plan, groups)),
            method("step", [*arguments, PHASES] if by_phase else arguments),
            "\n".join(docstring(step_doc(plan), 8)),
            self._body(step, plan.step),
            method("sequential", arguments),
            '        """The same parts in program order on one stream, unsplit."""',
            self._body(sequential, plan.sequential),
            tuple(rows),
            tuple(fetches),
        )

    def _body(self, writer: StepWriter, program: Program) -> tuple[str, ...]:
        texts = []
        for line in writer.program(program):
            mark = ""
            if line.span is not None:
                mark = f"{MARK}{len(self.lines)}"
                self.lines.append(line)
            texts.append(line.text + mark)
        return tuple(texts)


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


def _beside(taken: Collection[str], part: str, what: str) -> str:
    """The attribute that calls a part's kernel, or what writes its results."""
    name = f"{part}_{what}"
    while name in taken or not _is_free(name):
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


def _camel(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))
