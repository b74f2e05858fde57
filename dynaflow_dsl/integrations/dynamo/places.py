"""The files of a model's modules, among those of other models of the program."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import relative
from dynaflow_dsl.cli.modules import ModuleFiles, default_folder
from dynaflow_dsl.cli.project import find_project
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.integrations.dynamo.modules import settle


def module_files(place: Path | None, name: str, suffix: str = "") -> ModuleFiles:
    """The files of a module: `place` is a file or a folder, None the project's folder.

    `name` is the module's where its place is no file, and `suffix` tells the graphs of
    a model apart in both.
    """
    if place is not None and place.suffix == ".py":
        return ModuleFiles.of(place.parent, f"{place.stem}{suffix}")
    folder = place or default_folder(find_project(Path.cwd()))
    return ModuleFiles.of(folder, f"{name}{suffix}")


def take_place(
    files: ModuleFiles,
    first: ModuleFiles,
    compiled: pipeline.CompiledModule,
    write: str,
    owner: Callable[[Path], torch.nn.Module | None],
) -> None:
    """Make the module on disk the compiled one, as far as that is allowed.

    `first` are the files of the model's first graph, and `owner` tells the other model
    of this program that runs the module of a file. Raises DiagnosticError: DFS507 where
    there is one with another module, and what `settle` says.
    """
    stored = files.read().module
    place = files.module.absolute()
    if stored not in (None, compiled.text) and owner(place) is not None:
        # A model may be gone, and not be collected yet.
        gc.collect()
        if (other := owner(place)) is not None:
            name = relative(files.module)
            raise DiagnosticError([_taken(name, other, _free(first))])
    found = settle(files, compiled, write)
    if found:
        beside = (
            "or, if it is the module of another model, give this one a place of its "
        )
        way = f"{beside}own: {_free(first)}"
        raise DiagnosticError(
            replace(each, helps=(*each.helps, way)) if each.code == "DFS502" else each
            for each in found
        )


def _taken(name: str, other: torch.nn.Module, free: str) -> Diagnostic:
    return Diagnostic(
        "DFS507",
        f"{name} is the module of another {type(other).__name__} of this program, and "
        "this model makes another one of this name",
        helps=(f"give this model a place of its own: {free}",),
    )


def _free(first: ModuleFiles) -> str:
    """The option that names a file which is not there yet."""
    number, place = 2, first.module
    while place.exists():
        place = first.module.with_stem(f"{first.module.stem}_{number}")
        number += 1
    return f'options={{"module": "{relative(place)}"}}'
