"""The module of a schedule for a model: the committed one while it is current.

What `dfsc compile --check` calls current is current here: the model is traced, and the
text that comes out equals the one on disk.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeAlias, TypeVar

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import relative, schedule_name
from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.cli.making import with_stored
from dynaflow_dsl.cli.modules import MARK, ModuleFiles, ModuleText, default_folder
from dynaflow_dsl.cli.options import Given
from dynaflow_dsl.cli.project import find_project
from dynaflow_dsl.cli.repairs import by_call
from dynaflow_dsl.cli.staleness import (
    compare,
    may_be_lost,
    told,
)
from dynaflow_dsl.cli.stored import read_map, stored_target
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Result, Severity
from dynaflow_dsl.diagnostics.render import render
from dynaflow_dsl.integrations.errors import ScheduleError
from dynaflow_dsl.integrations.schedules import check_runs_one
from dynaflow_dsl.resolve.model import Scalar, ScheduleFile
from dynaflow_dsl.runtime import Executor, Selected
from dynaflow_dsl.trace import TraceSpec, trace
from dynaflow_dsl.trace.kernels import KernelReader

T = TypeVar("T")

Step: TypeAlias = Executor | Selected


@dataclass(frozen=True, slots=True)
class Target:
    """What a module says of the model that it is for, as `dfsc` finds it again."""

    name: str
    arguments: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller asks for beside the schedule and the model.

    `folder` is where committed modules lie, None for the folder of the project. With
    `write` a module that is missing or stale there is written; else it lives in memory.
    """

    folder: Path | None = None
    write: bool = False
    given: Given = field(default_factory=Given)


@dataclass(frozen=True, slots=True)
class Stored:
    """The module that lies on disk for a schedule, and what it was made for.

    `inputs` are those of its executors by entry, empty where it cannot be imported;
    `facts` are those that its schedules read.
    """

    files: ModuleFiles
    text: ModuleText
    inputs: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, Scalar]
    target: Target | None

    @property
    def generated(self) -> bool:
        """Whether there is a file, and it is a generated module."""
        return (self.text.module or "").startswith(MARK)


@dataclass(frozen=True, slots=True)
class ReadSchedule:
    """A schedule file, what it was given, and the module that lies there for it."""

    file: ScheduleFile
    path: str
    given: Given
    stored: Stored


@dataclass(frozen=True, slots=True)
class MadeModule:
    """A module that was imported.

    `file` is where it lies, None for one in memory; `stale` says why one on disk was
    left alone. `kept` holds the files of one in memory.
    """

    module: ModuleType
    file: Path | None
    stale: tuple[Diagnostic, ...] = ()
    kept: tempfile.TemporaryDirectory[str] | None = None

    @property
    def name(self) -> str:
        """The name of the module's file."""
        return f"{self.module.__name__}.py"


def read(schedule: str | os.PathLike[str], request: Request) -> ReadSchedule:
    """Read a schedule file, and the module that was committed for it.

    What that module was made with holds below what the request gives. Raises
    DiagnosticError, also for a file without schedules, or with several and nothing
    that chooses (DFS830).
    """
    path = schedule_name(schedule)
    folder = request.folder or default_folder(find_project(Path.cwd()))
    given = with_stored(request.given, pipeline.declared(path), folder)
    file: ScheduleFile = settled(
        pipeline.read_schedule(path, given.parameters, _in_python)
    )
    check_runs_one(file, path, "DFS830")
    files = ModuleFiles.of(folder, pipeline.module_name(file, path))
    return ReadSchedule(file, path, given, _stored(files))


def _in_python(name: str) -> str:
    return f'parameters["{name}"]'


def make(
    schedule: ReadSchedule, spec: TraceSpec, target: Target, *, write: bool
) -> MadeModule:
    """Compile a schedule for a model, and import the module that holds the text.

    The committed one is taken where it has this text. Raises DiagnosticError for what
    is wrong with the schedule or the model, and where a file may not be written over.
    """
    stored = schedule.stored
    target = stored.target or target
    spec = replace(spec, facts={**stored.facts, **spec.facts})
    traced = settled(trace(spec, target.name, target.arguments))
    compiled = settled(
        pipeline.compile_schedules(
            schedule.file,
            traced,
            schedule.given.facts,
            KernelReader(spec.device, spec.dtype),
        )
    )
    current = ModuleText(compiled.text, compiled.map)
    if stored.text == current:
        return _imported(stored.files)
    differences = compare(relative(stored.files.module), stored.text, current)
    differs = told(differences, by_call(schedule.path, write=write))
    if write:
        if may_be_lost(stored.text, current):
            refuse(*differs)
        stored.files.write(current)
        return _imported(stored.files)
    kept = tempfile.TemporaryDirectory(prefix="dynaflow_dsl_")
    files = ModuleFiles.of(Path(kept.name), compiled.name)
    files.write(current)
    stale = differs if stored.text.module is not None else ()
    return MadeModule(import_module_file(files.module), None, stale, kept)


def tell_stale(made: MadeModule) -> None:
    """Warn of a committed module that was passed over."""
    if made.stale:
        text = render(made.stale).rstrip()
        warnings.warn(
            f"the committed module was passed over for one in memory:\n{text}",
            RuntimeWarning,
            stacklevel=5,
        )


def given_module(module: ModuleType) -> MadeModule:
    """A generated module that the caller imported.

    Raises ScheduleError (DFS830) for any other module.
    """
    if not callable(getattr(module, "load", None)) or not executors_of(module):
        raise ScheduleError(
            "DFS830", f"{module.__name__} is no module that dfsc generated."
        )
    return MadeModule(module, Path(module.__file__ or ""))


def executors_of(module: ModuleType) -> Mapping[str, type[Executor]]:
    """The entries of a generated module, each with the first of its executors."""
    found: dict[str, type[Executor]] = {}
    for value in vars(module).values():
        if (
            isinstance(value, type)
            and issubclass(value, Executor)
            and value.__module__ == module.__name__
        ):
            found.setdefault(value.entry, value)
    return found


def steps_of(loaded: Any, name: str) -> dict[str, Step]:
    """The steps of a loaded module by entry; `name` is the module's, for messages.

    Raises ScheduleError (DFS830) where an entry has several schedules and nothing
    chooses between them.
    """
    single = isinstance(loaded, Executor | Selected)
    listed = [loaded] if single else list(vars(loaded).values())
    found: dict[str, Step] = {}
    for step in listed:
        if step.entry in found:
            raise ScheduleError(
                "DFS830",
                f"{name} has several schedules for the entry `{step.entry}`: let a "
                "`select` choose between them, or give each a file of its own.",
            )
        found[step.entry] = step
    return found


def settled(result: Result[T]) -> T:
    """The value of a result. Raises DiagnosticError, with places and ways out."""
    if result.value is None or not result.ok:
        refuse(*result.diagnostics)
    return result.value


def refuse(*found: Diagnostic) -> NoReturn:
    """Raise DiagnosticError with those that are errors, if any of them is."""
    errors = [item for item in found if item.severity is Severity.ERROR]
    raise DiagnosticError(errors or found)


def _imported(files: ModuleFiles) -> MadeModule:
    return MadeModule(import_module_file(files.module), files.module)


def _stored(files: ModuleFiles) -> Stored:
    """What lies on disk; a module that cannot be imported has no inputs."""
    text = files.read()
    known = read_map(text.map) or {}
    facts = dict(known["facts"]) if isinstance(known.get("facts"), dict) else {}
    # What class the model has is seen, and what it had is not to go before that.
    facts.pop("model", None)
    target = stored_target(text)
    stored = Stored(
        files,
        text,
        {},
        facts,
        Target(*target) if target is not None else None,
    )
    if not stored.generated:
        return stored
    try:
        module = import_module_file(files.module)
    except DiagnosticError:
        return stored
    inputs = {name: kind.inputs for name, kind in executors_of(module).items()}
    return replace(stored, inputs=inputs)
