"""`dfsc compile`: schedule files in, executor modules out."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from keyword import iskeyword
from pathlib import Path

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import not_written, relative
from dynaflow_dsl.cli.given_files import given_by_file
from dynaflow_dsl.cli.making import Wanted, make, stored_model, with_stored
from dynaflow_dsl.cli.modules import (
    MARK,
    ModuleFiles,
    ModuleText,
    default_folder,
    folder_option,
)
from dynaflow_dsl.cli.options import (
    Given,
    fact_option,
    model_options,
    parameter_option,
)
from dynaflow_dsl.cli.orphans import find_orphans, remove_orphan, show_orphan
from dynaflow_dsl.cli.repairs import BY_PROGRAM, by_call, by_command
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.running import chosen_files, current_project, going_on
from dynaflow_dsl.cli.schedules import read_schedule
from dynaflow_dsl.cli.staleness import (
    compare,
    compare_text,
    may_be_lost,
    of_another,
    told,
    unknown_format,
)
from dynaflow_dsl.cli.stored import (
    edited_by_hand,
    made_by_a_call,
    made_by_a_program,
)
from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity
from dynaflow_dsl.pipeline import Declared
from dynaflow_dsl.resolve.model import Scalar, ScheduleFile
from dynaflow_dsl.resources import PACKAGE


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for, the same for every file.

    `folder` is where modules go.
    """

    wanted: Wanted
    folder: Path
    check: bool
    diff: bool

    @property
    def writes(self) -> bool:
        """False when the command only compares."""
        return not (self.check or self.diff)


@click.command("compile")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@folder_option
@model_options
@parameter_option
@fact_option
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; say what is stale, missing, edited or an orphan.",
)
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
@click.option(
    "--prune",
    is_flag=True,
    help="Remove modules whose schedule is gone or makes another module.",
)
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    paths: tuple[str, ...],
    folder: str | None,
    model: str | None,
    model_arguments: Mapping[str, Scalar],
    parameters: Mapping[str, str],
    facts: Mapping[str, Scalar],
    check: bool,
    diff: bool,
    prune: bool,
) -> int:
    """Compile schedule files, or all below a folder; those of the project by default.

    Traces the model that each file names, proves the schedule and writes MODULE.py and
    MODULE.map.json. When anything is wrong the old module stays as it was, and the
    next file follows.
    """
    if prune and (check or diff):
        raise click.UsageError("--prune removes files, and --check and --diff do not")
    project = current_project(reporter)
    files = chosen_files(project, paths)
    given = given_by_file(Given(parameters, facts), project, files)
    request = Request(
        Wanted(project, model, model_arguments, given),
        Path(folder) if folder is not None else default_folder(project),
        check,
        diff,
    )
    declared = {path: pipeline.declared(path) for path in files}
    clashes = list(_clashes(declared, request.folder))
    if clashes:
        reporter.show(clashes)
        return reporter.code
    for path in files:
        with going_on(reporter, path):
            _compile(reporter, path, request, declared)
    if check or prune:
        for orphan in find_orphans(request.folder, files):
            if prune:
                with going_on(reporter, orphan.name):
                    remove_orphan(orphan, reporter)
            else:
                found = show_orphan(orphan, paths, project, request.folder)
                reporter.show([found])
    return reporter.code


def _clashes(
    declared: Mapping[str, Declared | None], folder: Path
) -> Iterator[Diagnostic]:
    """DFS507 for files that would write the same module."""
    first: dict[str, str] = {}
    for path, known in declared.items():
        if known is None or known.module is None:
            continue
        other = first.setdefault(known.module, path)
        if other == path:
            continue
        earlier = declared[other]
        assert earlier is not None
        places = [each.place for each in (known, earlier)]
        labels = [
            Label(place, "makes this module") for place in places if place is not None
        ]
        module = relative(ModuleFiles.of(folder, known.module).module)
        yield Diagnostic(
            "DFS507",
            f"{other} and {path} both make {module}",
            labels[0] if labels else None,
            tuple(labels[1:]),
            notes=("nothing was compiled",),
            helps=("rename one of them, or compile them into different folders",),
        )


def _compile(
    reporter: Reporter,
    path: str,
    request: Request,
    declared: Mapping[str, Declared | None],
) -> None:
    given = request.wanted.given_for(path)
    if not request.writes:
        given = with_stored(given, declared[path], request.folder)
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
    files = ModuleFiles.of(request.folder, name)
    chosen = None
    if file.model is None and not request.wanted.names_model(path):
        if not request.writes:
            chosen = stored_model(files, path, request.wanted)
        stored = files.read()
        if chosen is None and (made_by_a_program(stored) or made_by_a_call(stored)):
            _show_program(reporter, path, files, stored, file, request)
            return
        importers = _importers(path, declared)
        if chosen is None and importers:
            reporter.say(f"{path}: no module of its own; {importers[0]} imports it")
            return
    if chosen is None:
        chosen = request.wanted.model_for(file, path, given)
    made = make(reporter, file, chosen, given)
    if made is None:
        return
    if request.writes:
        _write(reporter, files, made.text)
    else:
        repair = request.wanted.compile_command(
            path, request.folder, given, made.loaded.traced.target
        )
        _compare(reporter, path, files, made.text, repair, diff=request.diff)


def _show_program(
    reporter: Reporter,
    path: str,
    files: ModuleFiles,
    stored: ModuleText,
    file: ScheduleFile,
    request: Request,
) -> None:
    """What can be said of a module whose model only a program knows."""
    name = relative(files.module)
    called = made_by_a_call(stored)
    does = "gives its model to `schedule`" if called else "compiles its model"
    if request.writes:
        reporter.say(f"{path}: the program that {does} writes {name}")
        return
    ways = by_call(path, write=False) if called else BY_PROGRAM
    found = told(compare_text(name, stored, file.digest), ways)
    reporter.show(found)
    if not found:
        reporter.say(
            f"{name}: up to date by its text; the program that {does} compares the "
            "graph"
        )


def _importers(path: str, declared: Mapping[str, Declared | None]) -> list[str]:
    return [
        other for other, known in declared.items() if known and path in known.imports
    ]


def _write(reporter: Reporter, files: ModuleFiles, current: ModuleText) -> None:
    name = relative(files.module)
    stored = files.read()
    if stored.module is not None and not stored.module.startswith(MARK):
        reason = "there is a file that is not a generated module"
        raise not_written(files.module, reason, "choose another folder with -o")
    if stored.module is None and may_be_lost(stored, current):
        reason = "there is a file that is not the map of a generated module"
        raise not_written(files.map, reason, "choose another folder with -o")
    for rule in (unknown_format, of_another):
        if (found := rule(name, stored, current)) is not None:
            reporter.show(told([found], by_command("")))
            return
    if may_be_lost(stored, current):
        reporter.show([_overwritten(name, certain=edited_by_hand(stored))])
    # The map names the module's bytes, so the module goes first: a reader that comes
    # between the two finds a module newer than its map and says so.
    files.write(current)
    reporter.result(name, {"module": name, "map": relative(files.map)})


def _compare(
    reporter: Reporter,
    path: str,
    files: ModuleFiles,
    current: ModuleText,
    repair: str,
    *,
    diff: bool,
) -> None:
    name = relative(files.module)
    stored = files.read()
    differences = compare(name, stored, current)
    found = [
        replace(each, about=path) for each in told(differences, by_command(repair))
    ]
    if diff:
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


def _overwritten(name: str, *, certain: bool) -> Diagnostic:
    said = "was edited by hand; the edit is lost"
    if not certain:
        said = "had no map that could be read; an edit by hand is lost"
    return Diagnostic(
        code="DFS504",
        message=f"{name} {said}",
        helps=("change the schedule instead of the module",),
        severity=Severity.WARNING,
    )
