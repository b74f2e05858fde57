"""`dfsc compile`: schedule files in, executor modules out."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from keyword import iskeyword
from pathlib import Path

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import relative, schedule_files
from dynaflow_dsl.cli.models import kernel_reader, load_model
from dynaflow_dsl.cli.modules import (
    MARK,
    ModuleFiles,
    ModuleText,
    compile_command,
    folder_option,
)
from dynaflow_dsl.cli.options import (
    ChosenModel,
    Given,
    choose_model,
    fact_option,
    model_options,
    parameter_option,
)
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.schedules import read_schedule
from dynaflow_dsl.cli.staleness import (
    compare,
    edited_by_hand,
    stored_given,
    stored_target,
)
from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity
from dynaflow_dsl.resolve.model import Scalar, ScheduleFile
from dynaflow_dsl.resources import PACKAGE


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for, the same for every file."""

    folder: Path
    model: str | None
    arguments: Mapping[str, Scalar]
    given: Given
    check: bool
    diff: bool

    @property
    def writes(self) -> bool:
        """False when the command only compares."""
        return not (self.check or self.diff)


@click.command("compile")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@folder_option
@model_options
@parameter_option
@fact_option
@click.option(
    "--check", is_flag=True, help="Write nothing; say what is stale, missing or edited."
)
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    paths: tuple[str, ...],
    folder: str,
    model: str | None,
    model_arguments: Mapping[str, Scalar],
    parameters: Mapping[str, str],
    facts: Mapping[str, Scalar],
    check: bool,
    diff: bool,
) -> int:
    """Compile schedule files, or all below a folder.

    Traces the model that each file names, proves the schedule and writes MODULE.py and
    MODULE.map.json. When anything is wrong the old module stays as it was.
    """
    request = Request(
        Path(folder), model, model_arguments, Given(parameters, facts), check, diff
    )
    written: dict[Path, str] = {}
    for path in schedule_files(paths):
        _compile(reporter, path, request, written)
    return reporter.code


def _compile(
    reporter: Reporter, path: str, request: Request, written: dict[Path, str]
) -> None:
    given = _given(path, request)
    file = read_schedule(reporter, path, given.parameters)
    if file is None:
        return
    if not file.schedules:
        reporter.say(f"{path}: no schedule, so no module")
        return
    name = pipeline.module_name(file, path)
    if (hides := _hides(name)) is not None:
        reporter.show([_bad_name(file, name, hides)])
        return
    chosen = _choose(file, path, request)
    loaded = load_model(reporter, chosen)
    if loaded is None:
        return
    compiled = pipeline.compile_schedules(
        file, loaded.traced, given.facts, kernel_reader(loaded)
    )
    reporter.show(compiled.diagnostics)
    if compiled.value is None or not compiled.ok:
        return
    module = compiled.value
    files = ModuleFiles.of(request.folder, module.name)
    if files.module in written:
        other = written[files.module]
        raise click.UsageError(f"{other} and {path} both make {relative(files.module)}")
    written[files.module] = path
    current = ModuleText(module.text, module.map)
    if request.writes:
        _write(reporter, files, current)
    else:
        _compare(reporter, files, current, replace(request, given=given), path)


def _given(path: str, request: Request) -> Given:
    """What the command line gives; a check adds what the module was made with."""
    given = request.given
    if not request.check:
        return given
    declared = pipeline.declared(path)
    if declared is None:
        return given
    name, parameters = declared
    stored = stored_given(ModuleFiles.of(request.folder, name).read())
    # A parameter that went makes the module stale, which is what a check is to find.
    kept = {n: text for n, text in stored.parameters.items() if n in parameters}
    return Given({**kept, **given.parameters}, {**stored.facts, **given.facts})


def _choose(file: ScheduleFile, path: str, request: Request) -> ChosenModel:
    if not request.writes and request.model is None and not request.arguments:
        files = ModuleFiles.of(request.folder, pipeline.module_name(file, path))
        known = stored_target(files.read())
        if known is not None and file.model is None:
            return ChosenModel(*known, None)
    return choose_model(file, path, request.model, request.arguments)


def _write(reporter: Reporter, files: ModuleFiles, current: ModuleText) -> None:
    name = relative(files.module)
    stored = files.read()
    if stored.module is not None and not stored.module.startswith(MARK):
        raise click.FileError(name, "it is not a generated module: choose another -o")
    if edited_by_hand(stored):
        reporter.show([_overwritten(name)])
    # The map names the module's bytes, so the module goes first: a reader that comes
    # between the two finds a module newer than its map and says so.
    files.write(current)
    reporter.result(name, {"module": name, "map": relative(files.map)})


def _compare(
    reporter: Reporter,
    files: ModuleFiles,
    current: ModuleText,
    request: Request,
    path: str,
) -> None:
    name = relative(files.module)
    stored = files.read()
    repair = compile_command(
        path, request.folder, request.model, request.arguments, request.given
    )
    found = compare(name, stored, current, repair)
    if request.diff:
        old = (stored.module or "").splitlines(keepends=True)
        new = (current.module or "").splitlines(keepends=True)
        text = "".join(difflib.unified_diff(old, new, name, name))
        if text:
            reporter.result(text.removesuffix("\n"), {"module": name, "diff": text})
    reporter.show(found)
    if not found:
        reporter.say(f"{name}: up to date")


def _hides(name: str) -> str | None:
    """Why a module cannot have this name."""
    if iskeyword(name) or not name.isidentifier():
        return "Python cannot import a module of this name"
    if name in sys.stdlib_module_names or name in ("torch", PACKAGE.name):
        return "it would hide the module of this name that it needs itself"
    return None


def _bad_name(file: ScheduleFile, name: str, why: str) -> Diagnostic:
    named = file.select or (file.schedules[0] if len(file.schedules) == 1 else None)
    kind = "file" if named is None else "schedule"
    if named is not None and named is file.select:
        kind = "select"
    return Diagnostic(
        code="DFS101",
        message=f"the module would be called '{name}'",
        primary=Label(named.name_span, why) if named is not None else None,
        notes=() if named is not None else (why,),
        helps=(f"rename the {kind}",),
    )


def _overwritten(name: str) -> Diagnostic:
    return Diagnostic(
        code="DFS504",
        message=f"{name} was edited by hand; the edit is lost",
        helps=("change the schedule instead of the module",),
        severity=Severity.WARNING,
    )
