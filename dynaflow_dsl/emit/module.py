"""Proved plans to the text of a module and its map. Cannot fail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from dynaflow_dsl.bind.agreement import rank_digests
from dynaflow_dsl.emit.executors import ModuleWriter
from dynaflow_dsl.emit.layout import WIDTH, docstring
from dynaflow_dsl.emit.line_map import (
    loop_lines,
    operation_lines,
    plan_lines,
    unmark,
    write_map,
)
from dynaflow_dsl.emit.model import Module
from dynaflow_dsl.emit.select import ChoiceText, loader_lines, write_choice
from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.graph.model import TensorType, TracedModel
from dynaflow_dsl.prove.model import ProvedPlan
from dynaflow_dsl.resolve import Selection
from dynaflow_dsl.resolve.model import Schedule, ScheduleFile, Select, UsedFact
from dynaflow_dsl.resources import folder

# Rises only when emitted text or what it needs of the runtime changes.
MODULE_FORMAT = 1


def emit(
    plans: Sequence[ProvedPlan],
    file: ScheduleFile,
    name: str,
    source: str,
    model: TracedModel,
    facts: Sequence[UsedFact] = (),
    selection: Selection | None = None,
) -> Module:
    """The module `name` with a class per plan; `source` is the file's name in it.

    `facts` are those of the model that the schedules require something of, and
    `selection` is what a `select` chooses in each entry.
    """
    writer = ModuleWriter(several=len(plans) > 1)
    executors = [writer.executor(proved.plan) for proved in plans]
    choices: list[ChoiceText] = []
    if selection is not None:
        classes = {
            (p.plan.binding.schedule.name, p.plan.binding.graph.entry): executor.name
            for p, executor in zip(plans, executors, strict=True)
        }
        choices = [
            write_choice(selection, each, classes, writer.functions.new_name)
            for each in selection.entries
        ]
    schedules = [proved.plan.binding.schedule for proved in plans]
    splits = [schedule.split for schedule in schedules if schedule.split is not None]
    attributes = [line for text in executors for line in text.attributes]
    used = {
        "Capture": any(schedule.captures for schedule in schedules),
        "Executor": True,
        "Fetch": any(text.fetches for text in executors),
        "Into": any("Into(" in line for e in executors for line in e.parts),
        "Modules": any("Modules(" in line for e in executors for line in e.parts),
        "Part": True,
        "PhaseSplit": any(split.phases for split in splits),
        "Split": any(not split.phases for split in splits),
        "StreamOptions": any("stream_options" in line for line in attributes),
        "TensorSpec": True,
        "loader": True,
    }
    imports = [name for name, wanted in used.items() if wanted]
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
        docstring="\n".join(docstring([_about(plans, file, source)], 0)),
        standard_imports=["from fractions import Fraction"]
        if any(each.exact for each in choices)
        else [],
        imports=_import_list(imports),
        kernels=[each.statement for each in writer.functions.kernels.imported],
        executors=executors,
        choices=[each.lines for each in choices],
        loader=loader_lines([executor.name for executor in executors], choices),
        functions=[function.lines for function in writer.functions.written],
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
        file=file,
        facts=facts,
        selection=selection,
        choices=choices,
        kernels=writer.functions.kernels.imported,
        graphs=digests,
        ranks={
            graph.entry: alike
            for graph in (p.plan.binding.graph for p in plans)
            if (alike := rank_digests(graph)) is not None
        },
        model=model,
        lines=plan_lines(origins, writer.lines),
        operations=operation_lines(starts, writer.functions.written),
        loops=loop_lines(starts, writer.functions.written),
        tensors=_tensors(plans),
        format_number=MODULE_FORMAT,
    )
    return Module(name, text, map_text)


def _import_list(names: Sequence[str]) -> str:
    """What stands behind `import`, over several lines where one is too long."""
    text = ", ".join(names)
    if len(f"from dynaflow_dsl.runtime import {text}") <= WIDTH:
        return text
    return "(\n" + "".join(f"    {name},\n" for name in names) + ")"


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


def _about(plans: Sequence[ProvedPlan], file: ScheduleFile, source: str) -> str:
    documented: list[Schedule | Select] = [p.plan.binding.schedule for p in plans]
    if file.select is not None:
        documented = [file.select]
    docs = list(dict.fromkeys(each.doc for each in documented if each.doc))
    return "\n\n".join(docs) or f"Executor of {source}."


def _tensors(plans: Sequence[ProvedPlan]) -> dict[str, TensorType]:
    return {
        item.name: item.value.type
        for proved in plans
        for item in proved.plan.binding.graph.inputs
        if item.kind in ("parameter", "buffer")
    }
