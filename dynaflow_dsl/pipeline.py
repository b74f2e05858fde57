"""Text to schedule, schedule and graph to module: the compiler on one screen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynaflow_dsl.bind import Binding, bind, inactive
from dynaflow_dsl.diagnostics import Diagnostic, Result
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.imports import file_reader, project_root
from dynaflow_dsl.plan import plan
from dynaflow_dsl.prove import ProvedPlan, prove
from dynaflow_dsl.resolve import Facts, decide, resolve
from dynaflow_dsl.resolve.model import Scalar, ScheduleFile, UsedFact
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse
from dynaflow_dsl.syntax.model import Schedule


@dataclass(frozen=True, slots=True)
class CheckedSchedules:
    """Every schedule of a file, bound to every entry of a model, and proved.

    `facts` are those of the model that the schedules require something of.
    """

    bindings: tuple[Binding, ...]
    plans: tuple[ProvedPlan, ...]
    facts: tuple[UsedFact, ...]


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """A module's name, its text, the text of its map, and what they were made from."""

    name: str
    text: str
    map: str
    plans: tuple[ProvedPlan, ...]
    bindings: tuple[Binding, ...]


def read_source(path: str | Path) -> Result[Source]:
    """The text of a file, with plain line ends; DFS113 when it is not UTF-8 text."""
    read = read_exactly(path)
    return Result(read.value and with_plain_line_ends(read.value), read.diagnostics)


def read_exactly(path: str | Path) -> Result[Source]:
    """The text of a file as it lies on disk; DFS113 as for `read_source`."""
    try:
        return Result(Source(Path(path).as_posix(), Path(path).read_bytes().decode()))
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 text (byte {error.start})"
    message = f"{Path(path).as_posix()} cannot be read: {reason}"
    return Result(None, (Diagnostic("DFS113", message),))


def with_plain_line_ends(source: Source) -> Source:
    """The same text with the line ends of every platform as single characters."""
    text = source.text.replace("\r\n", "\n").replace("\r", "\n")
    return Source(source.name, text)


def understand(
    source: Source, parameters: Mapping[str, str] | None = None
) -> Result[ScheduleFile]:
    """Text to schedules: syntax, imports and names, no model needed.

    `parameters` go before the defaults of the file, in the words of a command line.
    """
    tree = parse(source)
    if tree.value is None or not tree.ok:
        return Result(None, tree.diagnostics)
    file = resolve(tree.value, file_reader(source), parameters)
    return Result(file.value, tree.diagnostics + file.diagnostics)


def read_schedule(
    path: str | Path, parameters: Mapping[str, str] | None = None
) -> Result[ScheduleFile]:
    """A file to schedules."""
    source = read_source(path)
    if source.value is None:
        return Result(None, source.diagnostics)
    return understand(source.value, parameters)


def require_facts(
    file: ScheduleFile,
    model: TracedModel | None,
    given: Mapping[str, Scalar] | None = None,
) -> Result[tuple[UsedFact, ...]]:
    """Decide what the schedules require; `given` goes before the model's facts."""
    if model is None:
        return decide(file, Facts(given or {}))
    dimensions = [name for graph in model.graphs for name, _, _ in graph.dimensions]
    return decide(file, Facts(given or {}, dict(model.facts), tuple(dimensions)))


def check_schedules(
    file: ScheduleFile,
    model: TracedModel,
    facts: Mapping[str, Scalar] | None = None,
) -> Result[CheckedSchedules]:
    """Bind, plan and prove every schedule for every entry; all findings together.

    Nothing is bound to a model for which the schedules do not say they are made.
    """
    required = require_facts(file, model, facts)
    if required.value is None:
        return Result(None, required.diagnostics)
    bindings: list[Binding] = []
    plans: list[ProvedPlan] = []
    found: list[Diagnostic] = []
    for schedule in file.schedules:
        found += inactive(schedule, model.device)
        for graph in model.graphs:
            bound = bind(schedule, graph)
            found += bound.diagnostics
            if bound.value is None:
                continue
            bindings.append(bound.value)
            planned = plan(bound.value)
            found += planned.diagnostics
            if planned.value is None:
                continue
            proved = prove(planned.value)
            found += proved.diagnostics
            if proved.value is not None:
                plans.append(proved.value)
    # A fault in a file is found once per entry: say it once.
    diagnostics = tuple(dict.fromkeys(found))
    if len(plans) < len(file.schedules) * len(model.graphs):
        return Result(None, diagnostics)
    return Result(
        CheckedSchedules(tuple(bindings), tuple(plans), required.value), diagnostics
    )


def compile_schedules(
    file: ScheduleFile,
    model: TracedModel,
    facts: Mapping[str, Scalar] | None = None,
) -> Result[CompiledModule]:
    """The module of a file, which has at least one schedule, for a traced model."""
    # Here, since `dfsc check` emits nothing and need not load the template engine.
    from dynaflow_dsl.emit import emit

    checked = check_schedules(file, model, facts)
    if checked.value is None:
        return Result(None, checked.diagnostics)
    plans = checked.value.plans
    path = file.schedules[0].span.source.name
    name = module_name(file, path)
    module = emit(plans, file, name, stable_name(path), model, checked.value.facts)
    return Result(
        CompiledModule(
            module.name, module.text, module.map, plans, checked.value.bindings
        ),
        checked.diagnostics,
    )


def module_name(file: ScheduleFile, path: str) -> str:
    """The only schedule's name, else the file's."""
    return _module_name([schedule.name for schedule in file.schedules], path)


def declared(path: str) -> tuple[str, frozenset[str]] | None:
    """The name of the module that a file makes, and the parameters it has, whatever
    their values are; None when the file cannot be read.
    """
    source = read_source(path)
    tree = parse(source.value).value if source.value is not None else None
    if tree is None:
        return None
    schedules = [each for each in tree.declarations if isinstance(each, Schedule)]
    name = _module_name([schedule.name.text for schedule in schedules], path)
    parameters = (item.name.text for each in schedules for item in each.parameters)
    return name, frozenset(parameters)


def _module_name(schedules: Sequence[str], path: str) -> str:
    return schedules[0] if len(schedules) == 1 else re.sub(r"\W", "_", Path(path).stem)


def stable_name(path: str) -> str:
    """A file's path from the root of its project, the same wherever dfsc is run.

    A file of no project goes by its name alone.
    """
    absolute = Path(path).absolute()
    root = project_root(absolute)
    return absolute.relative_to(root).as_posix() if root else absolute.name
