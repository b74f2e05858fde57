"""A schedule file compiled for its model: what the commands that run one begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.models import LoadedModel, kernel_reader, load_model
from dynaflow_dsl.cli.modules import ModuleFiles, ModuleText, compile_command
from dynaflow_dsl.cli.options import ChosenModel, Given, choose_model
from dynaflow_dsl.cli.project import Project
from dynaflow_dsl.cli.report import Reporter
from dynaflow_dsl.cli.schedules import read_schedule
from dynaflow_dsl.cli.stored import made_by_a_call, stored_given, stored_target
from dynaflow_dsl.pipeline import Declared
from dynaflow_dsl.resolve.model import Scalar, ScheduleFile


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a command line asks for; it goes before what the project says of each file.

    `given` are the parameters and facts of each file, by its path.
    """

    project: Project
    model: str | None
    arguments: Mapping[str, Scalar]
    given: Mapping[str, Given]

    def given_for(self, path: str) -> Given:
        """Parameters and facts of a file."""
        return self.given[path]

    def names_model(self, path: str) -> bool:
        """Whether the command line or the project names a model for a file."""
        return self._model(path) is not None

    def model_for(self, file: ScheduleFile, path: str, given: Given) -> ChosenModel:
        """The trace target of a file.

        Raises DiagnosticError (DFS110) when nothing names one.
        """
        return choose_model(
            file,
            path,
            self._model(path),
            self.arguments,
            self.project.settings(path).arguments,
            given.arguments,
        )

    def compile_command(
        self, path: str, folder: Path, given: Given, target: str
    ) -> str:
        """The command line that makes a file's module for a trace target current."""
        configured = self.project.settings(path).arguments
        kept = {} if self.names_model(path) else given.arguments.get(target, {})
        arguments = {n: value for n, value in kept.items() if n not in configured}
        arguments.update(self.arguments)
        return compile_command(path, self.project, folder, self.model, arguments, given)

    def _model(self, path: str) -> str | None:
        if self.model is not None:
            return self.model
        return self.project.settings(path).model


@dataclass(frozen=True, slots=True)
class Made:
    """A module that was just compiled, the model that it is for, and the parameters and
    facts that it was made with.
    """

    loaded: LoadedModel
    module: pipeline.CompiledModule
    given: Given

    @property
    def text(self) -> ModuleText:
        """The module and its map as they would lie on disk."""
        return ModuleText(self.module.text, self.module.map)

    def write(self, folder: Path) -> ModuleFiles:
        """Put the module and its map into a folder."""
        files = ModuleFiles.of(folder, self.module.name)
        files.write(self.text)
        return files


def make(
    reporter: Reporter,
    file: ScheduleFile,
    chosen: ChosenModel,
    given: Given,
) -> Made | None:
    """Trace the model and compile the file for it; None after errors were shown."""
    loaded = load_model(reporter, chosen)
    if loaded is None:
        return None
    compiled = pipeline.compile_schedules(
        file, loaded.traced, given.facts, kernel_reader(loaded)
    )
    reporter.show(compiled.diagnostics)
    if compiled.value is None or not compiled.ok:
        return None
    return Made(loaded, compiled.value, given)


def make_to_run(
    reporter: Reporter, path: str, wanted: Wanted, folder: Path | None = None
) -> Made | None:
    """The module of a file that is about to run; None when there is none to run.

    `folder` is where modules lie, None where none of them counts: what one there was
    made with holds below what the command line and the project say.
    """
    given = wanted.given_for(path)
    if folder is not None:
        given = with_stored(given, pipeline.declared(path), folder)
    file = read_schedule(reporter, path, given.parameters)
    if file is None:
        return None
    if not file.schedules:
        reporter.say(f"{path}: no schedule, so nothing to run")
        return None
    chosen = None
    if folder is not None and file.model is None:
        name = pipeline.module_name(file, path)
        chosen = stored_model(ModuleFiles.of(folder, name), path, wanted)
    if chosen is None:
        chosen = wanted.model_for(file, path, given)
    return make(reporter, file, chosen, given)


def with_stored(given: Given, declared: Declared | None, folder: Path) -> Given:
    """What is given, and below it what the module in a folder was made with."""
    if declared is None or declared.module is None:
        return given
    stored = stored_given(ModuleFiles.of(folder, declared.module).read())
    # A parameter that went makes the module stale, which is what a check is to find.
    kept = {
        n: text for n, text in stored.parameters.items() if n in declared.parameters
    }
    return given.over(Given(kept, stored.facts, stored.arguments))


def stored_model(files: ModuleFiles, path: str, wanted: Wanted) -> ChosenModel | None:
    """The model that a module was made for, where nothing else names one."""
    if wanted.names_model(path) or wanted.arguments:
        return None
    stored = files.read()
    known = None if made_by_a_call(stored) else stored_target(stored)
    return ChosenModel(*known, None) if known is not None else None
