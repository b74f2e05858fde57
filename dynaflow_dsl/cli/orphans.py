"""Generated modules whose schedule is gone, or makes another module now."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import relative, remove, schedules_below
from dynaflow_dsl.cli.modules import MARK, ModuleFiles, ModuleText, folder_words
from dynaflow_dsl.cli.project import Project
from dynaflow_dsl.cli.report import Reporter
from dynaflow_dsl.cli.stored import (
    edited_by_hand,
    made_by_a_program,
    read_map,
)
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.imports import library_file, of_library, project_root
from dynaflow_dsl.resolve import Unreadable

MAP = ".map.json"

_HEADER = re.compile(re.escape(MARK) + r"from (.+)\. DO NOT EDIT\.")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A module or a map that dfsc wrote, and why nothing makes it any more.

    `kept` says why it is not removed, None when it is as it was written.
    """

    files: ModuleFiles
    reason: str
    kept: str | None

    @property
    def name(self) -> str:
        """The file that messages are about."""
        path = self.files.module if self.files.module.exists() else self.files.map
        return relative(path)


def find_orphans(folder: Path, schedules: Sequence[str]) -> Iterator[Orphan]:
    """The orphans in a folder of modules; `schedules` are files known to exist.

    A module without a schedule file that can be read is none: nobody knows what the
    file makes once its mistakes are corrected.
    """
    known = {pipeline.stable_name(path): path for path in schedules}
    for name in _stems(folder):
        files = ModuleFiles.of(folder, name)
        try:
            stored = files.read()
        except DiagnosticError:
            # What is no text was not written by dfsc.
            continue
        source = _source_of(name, stored)
        if source is None:
            continue
        places = _places(source, folder, known)
        if places and made_by_a_program(stored):
            # The program says how its modules are called, by graph if there are many.
            continue
        reason = _why(name, source, places, folder)
        if reason is not None:
            yield Orphan(files, reason, _why_kept(stored))


def show_orphan(
    orphan: Orphan, paths: Sequence[str], project: Project, folder: Path
) -> Diagnostic:
    """DFS503, with the command that removes it."""
    words = ["dfsc", "compile", "--prune", *paths, *folder_words(project, folder)]
    help_ = f"run `{shlex.join(words)}` to remove it"
    if orphan.kept is not None:
        help_ = f"{orphan.kept}: save what is worth it, and delete the file"
    message = f"{orphan.name} is an orphan: {orphan.reason}"
    return Diagnostic("DFS503", message, helps=(help_,), about=orphan.name)


def remove_orphan(orphan: Orphan, reporter: Reporter) -> None:
    """Remove an orphan with its map, unless it may hold work of somebody."""
    if orphan.kept is not None:
        message = f"{orphan.name} is an orphan and is not removed: {orphan.kept}"
        helps = ("save what is worth it, and delete the file",)
        found = Diagnostic("DFS504", message, helps=helps, about=orphan.name)
        reporter.show([found])
        return
    name = orphan.name
    remove(orphan.files.module)
    remove(orphan.files.map)
    reporter.result(f"removed {name}", {"removed": name, "reason": orphan.reason})


def _stems(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    names = [path.name for path in folder.iterdir() if path.is_file()]
    return sorted(
        {name.removesuffix(MAP) for name in names if name.endswith(MAP)}
        | {name.removesuffix(".py") for name in names if name.endswith(".py")}
    )


def _source_of(name: str, stored: ModuleText) -> str | None:
    """The schedule file that a module names; None for what dfsc did not write."""
    known = read_map(stored.map) or {}
    if stored.module is not None:
        header = _HEADER.match(stored.module)
        if header is None:
            return None
        source = known.get("source")
        return source if isinstance(source, str) else header[1]
    match known:
        case {"format": int(), "module": module, "source": str(source), "body": str()}:
            return source if module == f"{name}.py" else None
    return None


def _places(source: str, folder: Path, known: Mapping[str, str]) -> list[str] | None:
    """The files that a module may mean by the name of its schedule; None when they may
    be where nobody looks.

    A name counts from the root of the project, or is one of the shipped library.
    Modules in a folder of another project are that one's affair. Without a project a
    file goes by its name alone, and may lie anywhere below the current folder.
    """
    if source in known:
        return [known[source]]
    root = project_root(Path.cwd() / "here")
    if not folder.resolve().is_relative_to((root or Path.cwd()).resolve()):
        return None
    if of_library(source):
        return [] if isinstance(library_file(source), Unreadable) else [source]
    if root is not None:
        return [relative(root / source)] if (root / source).is_file() else []
    return [relative(p) for p in schedules_below(Path()) if p.name == source]


def _why(
    name: str, source: str, places: Sequence[str] | None, folder: Path
) -> str | None:
    """Why no file makes a module; None when one does, or might."""
    if places is None:
        return None
    declared = [pipeline.declared(path) for path in places]
    if any(each is None or each.module == name for each in declared):
        return None
    others = [each.module for each in declared if each is not None and each.module]
    if not places:
        return f"its schedule file {source} is gone"
    if not others:
        return f"{source} has no schedule any more"
    return f"{source} makes {relative(folder / f'{others[0]}.py')} now"


def _why_kept(stored: ModuleText) -> str | None:
    if stored.module is None:
        return None
    if read_map(stored.map) is None:
        return "its map is missing, so it may have been edited by hand"
    return "it was edited by hand" if edited_by_hand(stored) else None
