"""Text to schedule, schedule and graph to module: the compiler on one screen."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dynaflow_dsl.bind import (
    Binding,
    ReadsKernels,
    bind,
    bind_kernels,
    inactive,
    kept_resident,
    needless_statements,
)
from dynaflow_dsl.bind.uses import groups
from dynaflow_dsl.diagnostics import Diagnostic, Result
from dynaflow_dsl.graph.model import Graph, TracedModel
from dynaflow_dsl.imports import (
    file_reader,
    library_file,
    of_library,
    project_root,
)
from dynaflow_dsl.plan import plan
from dynaflow_dsl.prove import ProvedPlan, prove
from dynaflow_dsl.resolve import (
    EntrySizes,
    Facts,
    Selection,
    choose,
    decide,
    resolve,
)
from dynaflow_dsl.resolve.model import Scalar, Schedule, ScheduleFile, UsedFact
from dynaflow_dsl.resolve.parameters import on_command_line
from dynaflow_dsl.resolve.sequential import sequential_schedules
from dynaflow_dsl.resolve.uncaptured import never_given
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import model as syntax
from dynaflow_dsl.syntax import parse


@dataclass(frozen=True, slots=True)
class CheckedSchedules:
    """Every schedule of a file, bound to every entry of a model, and proved.

    `facts` are those of the model that the schedules require something of, or that a
    `select` chooses by; `selection` is what it chooses, None without one.
    """

    bindings: tuple[Binding, ...]
    plans: tuple[ProvedPlan, ...]
    facts: tuple[UsedFact, ...]
    selection: Selection | None = None


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """A module's name, its text, the text of its map, and what they were made from."""

    name: str
    text: str
    map: str
    plans: tuple[ProvedPlan, ...]
    bindings: tuple[Binding, ...]
    selection: Selection | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """What a file declares by its text alone.

    `module` is the name of the module it makes, None for a file without schedules, and
    `place` is where that name stands, if it is the name of a schedule. `imports` are
    the paths of the files it imports, seen from the same folder as its own path.
    """

    module: str | None
    place: Span | None
    parameters: frozenset[str]
    imports: frozenset[str]


def read_source(path: str | Path) -> Result[Source]:
    """The text of a file, with plain line ends; DFS113 when it is not UTF-8 text.

    `std:llama/halves.dfs` is a file of the shipped library, and stays its name.
    """
    read = _read_library(path) if of_library(str(path)) else read_exactly(path)
    return Result(read.value and with_plain_line_ends(read.value), read.diagnostics)


def read_exactly(path: str | Path) -> Result[Source]:
    """The text of a file as it lies on disk; DFS113 as for `read_source`."""
    return _read(Path(path), Path(path).as_posix())


def _read_library(name: str | Path) -> Result[Source]:
    found = library_file(str(name))
    if isinstance(found, tuple):
        return _read(*found)
    message = f"{name} cannot be read: {found.reason}"
    return Result(None, (Diagnostic("DFS113", message, helps=found.helps),))


def _read(path: Path, name: str) -> Result[Source]:
    try:
        return Result(Source(name, path.read_bytes().decode()))
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 text (byte {error.start})"
    except (OSError, ValueError) as error:
        # A null byte in the name is a ValueError.
        reason = getattr(error, "strerror", None) or str(error)
    return Result(None, (Diagnostic("DFS113", f"{name} cannot be read: {reason}"),))


def with_plain_line_ends(source: Source) -> Source:
    """The same text with the line ends of every platform as single characters."""
    text = source.text.replace("\r\n", "\n").replace("\r", "\n")
    return Source(source.name, text)


def understand(
    source: Source,
    parameters: Mapping[str, str] | None = None,
    place: Callable[[str], str] = on_command_line,
) -> Result[ScheduleFile]:
    """Text to schedules: syntax, imports and names, no model needed.

    `parameters` go before the defaults of the file, in the words of a command line;
    `place` is how whoever sets one calls it, for messages.
    """
    tree = parse(source)
    if tree.value is None or not tree.ok:
        return Result(None, tree.diagnostics)
    file = resolve(tree.value, file_reader(source), parameters, place)
    return Result(file.value, tree.diagnostics + file.diagnostics)


def read_schedule(
    path: str | Path,
    parameters: Mapping[str, str] | None = None,
    place: Callable[[str], str] = on_command_line,
) -> Result[ScheduleFile]:
    """A file to schedules; see `understand`."""
    source = read_source(path)
    if source.value is None:
        return Result(None, source.diagnostics)
    return understand(source.value, parameters, place)


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
    kernels: ReadsKernels | None = None,
    elsewhere: Sequence[str] | None = None,
) -> Result[CheckedSchedules]:
    """Bind, plan and prove every schedule for every entry; all findings together.

    Nothing is bound to a model for which the schedules do not say they are made.
    `kernels` imports what parts run through; without it, nothing is said of kernels.
    `elsewhere` names entries that are compiled by themselves, where a program finds its
    entries one by one; None where the model has all.
    """
    # What a select never chooses here may well be for other models.
    all_run = file if file.select is None else replace(file, schedules=())
    required = require_facts(all_run, model, facts)
    if required.value is None:
        return Result(None, required.diagnostics)
    selected = select_schedules(file, model, facts, elsewhere)
    if selected.value is None:
        return Result(None, selected.diagnostics)
    said = [*required.diagnostics]
    used, selection = required.value, selected.value.selection
    if selection is not None:
        chosen = tuple(dict.fromkeys(schedule for schedule, _ in selected.value.pairs))
        required = require_facts(replace(file, schedules=chosen), model, facts)
        if required.value is None:
            return Result(None, required.diagnostics)
        said += required.diagnostics
        read = {fact.name: fact for fact in (*required.value, *selection.facts)}
        used = tuple(read[name] for name in sorted(read))
    equal = {name.text for name in file.select.equal} if file.select else set()
    bindings: list[Binding] = []
    plans: list[ProvedPlan] = []
    found: list[Diagnostic] = [*said, *selected.diagnostics]
    distinct = tuple(dict.fromkeys(schedule for schedule, _ in selected.value.pairs))
    idle = [item for each in distinct for item in inactive(each, model.device)]
    found += idle
    if selection is not None and elsewhere is None:
        found += never_given(selection, distinct)
    for schedule, graph in selected.value.pairs:
        bound = bind(schedule, graph)
        found += bound.diagnostics
        if bound.value is not None and kernels is not None:
            bound = bind_kernels(bound.value, kernels, model.device)
            found += bound.diagnostics
        if bound.value is None:
            continue
        bindings.append(bound.value)
        planned = plan(bound.value)
        found += planned.diagnostics
        if planned.value is None:
            continue
        proved = prove(planned.value, equal)
        found += proved.diagnostics
        if proved.value is not None:
            plans.append(proved.value)
    # What is fetched for one executor of the module is not there for another.
    shared = list(kept_resident(bindings))
    found += shared
    found += needless_statements(bindings)
    # A fault in a file is found once per entry: say it once.
    diagnostics = tuple(dict.fromkeys(found))
    if shared or len(plans) < len(selected.value.pairs):
        # What has no effect here is no news beside what is wrong.
        return Result(None, tuple(each for each in diagnostics if each not in idle))
    return Result(
        CheckedSchedules(tuple(bindings), tuple(plans), used, selection), diagnostics
    )


@dataclass(frozen=True, slots=True)
class SelectedSchedules:
    """Which schedules are compiled for which entries.

    All for all without a `select`; else those that some step runs.
    """

    pairs: tuple[tuple[Schedule, Graph], ...]
    selection: Selection | None = None


def select_schedules(
    file: ScheduleFile,
    model: TracedModel,
    facts: Mapping[str, Scalar] | None = None,
    elsewhere: Sequence[str] | None = None,
) -> Result[SelectedSchedules]:
    """The schedules to compile for each entry of a model; see `check_schedules`.

    An entry whose every step runs `sequential` gets a schedule of its own that does
    nothing else.
    """
    if file.select is None:
        pairs = tuple((s, graph) for s in file.schedules for graph in model.graphs)
        return Result(SelectedSchedules(pairs))
    entries = [
        EntrySizes(g.entry, g.dimensions, g.fixed, g.phases, groups(g))
        for g in model.graphs
    ]
    known = Facts(facts or {}, dict(model.facts))
    splits = {s.name: s.split for s in file.schedules if s.split is not None}
    chosen = choose(file.select, known, entries, splits, elsewhere)
    if chosen.value is None:
        return Result(None, chosen.diagnostics)
    chosen_pairs = [
        (schedule, graph)
        for schedule in file.schedules
        for graph in model.graphs
        if schedule.name in chosen.value.schedules(graph.entry)
    ]
    for graph, choices in zip(model.graphs, chosen.value.entries, strict=True):
        if not chosen.value.schedules(graph.entry):
            place = file.select.lines[choices.lines[-1].line].span
            chosen_pairs.append((_sequential(file.schedules, graph, place), graph))
    return Result(
        SelectedSchedules(tuple(chosen_pairs), chosen.value), chosen.diagnostics
    )


def _sequential(schedules: Sequence[Schedule], graph: Graph, place: Span) -> Schedule:
    """The first way to run an entry as it was traced that fits it; the last one does
    unless the model is at fault."""
    *layers, whole = sequential_schedules(schedules, place)
    return next((each for each in layers if bind(each, graph).value is not None), whole)


def compile_schedules(
    file: ScheduleFile,
    model: TracedModel,
    facts: Mapping[str, Scalar] | None = None,
    kernels: ReadsKernels | None = None,
    name: str | None = None,
    elsewhere: Sequence[str] | None = None,
) -> Result[CompiledModule]:
    """The module of a file, which has at least one schedule, for a traced model.

    `kernels` imports the kernels that parts run through; a file without any needs none.
    `name` is the module's, where it is not to be called as the file says; for
    `elsewhere` see `check_schedules`.
    """
    # Here, since `dfsc check` emits nothing and need not load the template engine.
    from dynaflow_dsl.emit import emit

    checked = check_schedules(file, model, facts, kernels, elsewhere)
    if checked.value is None:
        return Result(None, checked.diagnostics)
    plans = checked.value.plans
    path = main_path(file)
    name = name or module_name(file, path)
    module = emit(
        plans,
        file,
        name,
        stable_name(path),
        model,
        checked.value.facts,
        checked.value.selection,
    )
    return Result(
        CompiledModule(
            module.name,
            module.text,
            module.map,
            plans,
            checked.value.bindings,
            checked.value.selection,
        ),
        checked.diagnostics,
    )


def main_path(file: ScheduleFile) -> str:
    """The path of the file that makes a module; what it chooses may be in others."""
    place = file.select.span if file.select else file.schedules[0].span
    return place.source.name


def module_name(file: ScheduleFile, path: str) -> str:
    """The select's name, else the only schedule's, else the file's."""
    if file.select is not None:
        return file.select.name
    return _module_name([schedule.name for schedule in file.schedules], path)


def declared(path: str) -> Declared | None:
    """What a file declares, whatever its parameters are; None when it has no syntax
    tree.
    """
    source = read_source(path)
    tree = parse(source.value).value if source.value is not None else None
    if tree is None:
        return None
    for kind in (syntax.Select, syntax.Schedule):
        named = [each for each in tree.declarations if isinstance(each, kind)]
        if named:
            break
    names = [each.name.text for each in named]
    parameters = (item.name.text for each in named for item in each.parameters)
    home = posixpath.dirname(path)
    imports = (each for each in tree.declarations if isinstance(each, syntax.Import))
    return Declared(
        _module_name(names, path) if names else None,
        named[0].name.span if len(named) == 1 else None,
        frozenset(parameters),
        frozenset(
            posixpath.normpath(
                each.file.value
                if of_library(each.file.value)
                else posixpath.join(home, each.file.value)
            )
            for each in imports
        ),
    )


def _module_name(schedules: Sequence[str], path: str) -> str:
    return schedules[0] if len(schedules) == 1 else re.sub(r"\W", "_", Path(path).stem)


def stable_name(path: str) -> str:
    """A file's path from the root of its project, the same wherever dfsc is run.

    A file of no project goes by its name alone, and one of the shipped library by its
    name there.
    """
    if of_library(path):
        return path
    absolute = Path(path).absolute()
    root = project_root(absolute)
    return absolute.relative_to(root).as_posix() if root else absolute.name
