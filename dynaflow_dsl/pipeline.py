"""Text to schedule, schedule and graph to module: the compiler on one screen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dynaflow_dsl.bind import Binding, bind
from dynaflow_dsl.diagnostics import Diagnostic, Result
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.plan import plan
from dynaflow_dsl.prove import ProvedPlan, prove
from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.resolve.model import ScheduleFile
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse


@dataclass(frozen=True, slots=True)
class CheckedSchedules:
    """Every schedule of a file, bound to every entry of a model, and proved."""

    bindings: tuple[Binding, ...]
    plans: tuple[ProvedPlan, ...]


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


def understand(source: Source) -> Result[ScheduleFile]:
    """Text to schedules: syntax and names, no model needed."""
    tree = parse(source)
    if tree.value is None or not tree.ok:
        return Result(None, tree.diagnostics)
    file = resolve(tree.value)
    return Result(file.value, tree.diagnostics + file.diagnostics)


def read_schedule(path: str | Path) -> Result[ScheduleFile]:
    """A file to schedules."""
    source = read_source(path)
    return (
        understand(source.value) if source.value else Result(None, source.diagnostics)
    )


def check_schedules(file: ScheduleFile, model: TracedModel) -> Result[CheckedSchedules]:
    """Bind, plan and prove every schedule for every entry; all findings together."""
    bindings: list[Binding] = []
    plans: list[ProvedPlan] = []
    found: list[Diagnostic] = []
    for schedule in file.schedules:
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
    return Result(CheckedSchedules(tuple(bindings), tuple(plans)), diagnostics)


def compile_schedules(file: ScheduleFile, model: TracedModel) -> Result[CompiledModule]:
    """The module of a file, which has at least one schedule, for a traced model."""
    # Here, since `dfsc check` emits nothing and need not load the template engine.
    from dynaflow_dsl.emit import emit

    checked = check_schedules(file, model)
    if checked.value is None:
        return Result(None, checked.diagnostics)
    plans = checked.value.plans
    path = file.schedules[0].span.source.name
    module = emit(plans, file, module_name(file, path), stable_name(path), model)
    return Result(
        CompiledModule(
            module.name, module.text, module.map, plans, checked.value.bindings
        ),
        checked.diagnostics,
    )


def module_name(file: ScheduleFile, path: str) -> str:
    """The only schedule's name, else the file's."""
    if len(file.schedules) == 1:
        return file.schedules[0].name
    return re.sub(r"\W", "_", Path(path).stem)


def stable_name(path: str) -> str:
    """A file's path from the root of its project, the same wherever dfsc is run.

    The root is the nearest folder above with a `pyproject.toml` or `.git`; a file of no
    project goes by its name alone.
    """
    absolute = Path(path).absolute()
    for parent in absolute.parents:
        if (parent / "pyproject.toml").exists() or (parent / ".git").exists():
            return absolute.relative_to(parent).as_posix()
    return absolute.name
