"""What a command line gives to each of several files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.options import Given
from dynaflow_dsl.cli.project import Project
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.resolve.findings import suggestions


def given_by_file(
    given: Given, project: Project, paths: Sequence[str]
) -> Mapping[str, Given]:
    """Parameters and facts of each file: the command line's before the project's.

    Of several files, a parameter is for those that have it. Raises DiagnosticError
    (DFS102) for one that none of them has; of a single file, its own reading says so.
    """
    own = dict.fromkeys(paths, given)
    if given.parameters and len(paths) > 1:
        own = _shared_out(given, paths)
    return {path: own[path].over(project.settings(path).given) for path in paths}


def _shared_out(given: Given, paths: Sequence[str]) -> dict[str, Given]:
    declared = {path: pipeline.declared(path) for path in paths}
    known = {name for one in declared.values() if one for name in one.parameters}
    # What a file without syntax tree has is not known, and reading it is an error.
    unknown = [name for name in given.parameters if name not in known]
    if unknown and None not in declared.values():
        raise DiagnosticError(
            [
                Diagnostic(
                    "DFS102",
                    f"-P {name}: no file has a parameter '{name}'",
                    helps=suggestions(name, known),
                )
                for name in unknown
            ]
        )
    return {
        path: replace(
            given,
            parameters={
                name: text
                for name, text in given.parameters.items()
                if one is not None and name in one.parameters
            },
        )
        for path, one in declared.items()
    }
