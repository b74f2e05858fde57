"""Schedule files as they are in git, read by the git command."""

from __future__ import annotations

import posixpath
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynaflow_dsl.cli.files import relative
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.imports import file_reader, of_library
from dynaflow_dsl.pipeline import with_plain_line_ends
from dynaflow_dsl.resolve import Reader, Unreadable
from dynaflow_dsl.source import Source


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that differs from a revision; one of the names is None when the file came
    or went, and they differ when it was renamed.
    """

    old: str | None
    new: str | None


def changed_files(revision: str, paths: Sequence[str]) -> tuple[ChangedFile, ...]:
    """The schedule files that differ from a revision, by their names from here.

    `paths` are files and folders to look at, everything below this folder by default.
    Files that git does not know yet count as new. Raises DiagnosticError (DFS113).
    """
    commit = _commit(revision)
    for path in paths:
        if not Path(path).exists() and not _is_in(commit, path):
            message = f"there is no {path}, neither here nor in the revision {revision}"
            raise DiagnosticError([Diagnostic("DFS113", message)])
    folders = [path for path in paths or ["."] if Path(path).is_dir()]
    limits = [path for path in paths if path not in folders]
    limits += [f":(glob){folder}/**/*.dfs" for folder in folders]
    # Git names what differs from the top of the repository.
    top = _git("rev-parse", "--show-prefix").strip()
    listed = _git("diff", "--name-status", "-z", "-M", commit, "--", *limits)
    fields = listed.split("\0")
    found = []
    while len(fields) > 1:
        status = fields.pop(0)
        old = _from_here(fields.pop(0), top)
        new = _from_here(fields.pop(0), top) if status[0] in "RC" else old
        match status[0]:
            case "A":
                found.append(ChangedFile(None, new))
            case "D":
                found.append(ChangedFile(old, None))
            case "C":
                found.append(ChangedFile(None, new))
            case _:
                found.append(ChangedFile(old, new))
    untracked = _git("ls-files", "-z", "--others", "--exclude-standard", "--", *limits)
    found += [ChangedFile(None, name) for name in untracked.split("\0") if name]
    return tuple(sorted(found, key=lambda each: each.new or each.old or ""))


def read_revision(revision: str, path: str) -> tuple[Source, Reader]:
    """A file as it is in a revision, and the reader of what it imports there.

    Raises DiagnosticError (DFS113) when there is no such revision or file.
    """
    commit = _commit(revision)
    known: dict[str, Source] = {}

    def load(place: str) -> Source:
        if place not in known:
            text = _git("show", f"{commit}:./{place}")
            source = Source(f"{revision}:{place}", text)
            known[place] = with_plain_line_ends(source)
        return known[place]

    on_disk = file_reader(Source(path, ""))

    def read(importer: Source, name: str) -> Source | Unreadable:
        if of_library(name) or of_library(importer.name):
            return on_disk(importer, name)
        home = posixpath.dirname(importer.name.removeprefix(f"{revision}:"))
        try:
            return load(posixpath.normpath(posixpath.join(home, name)))
        except DiagnosticError:
            return Unreadable(f"there is no such file in {revision}")

    try:
        return load(relative(Path(path))), read
    except DiagnosticError as error:
        message = f"there is no file {path} in the revision {revision}"
        raise DiagnosticError([Diagnostic("DFS113", message)]) from error


def split_revision(text: str) -> tuple[str, str] | None:
    """`REVISION:PATH` taken apart; None for the name of a file that exists, one of the
    shipped library, or when there is no colon.
    """
    if of_library(text):
        return None
    revision, colon, path = text.partition(":")
    if not colon or not revision or not path or Path(text).exists():
        return None
    return revision, path


def _is_in(commit: str, path: str) -> bool:
    return bool(_git("ls-tree", "--name-only", commit, "--", path))


def _from_here(path: str, prefix: str) -> str:
    return posixpath.relpath(path, prefix or ".")


def _commit(revision: str) -> str:
    if not _inside_repository():
        message = f"there is no revision '{revision}': this folder is in no repository"
        raise DiagnosticError([Diagnostic("DFS113", f"{message} of git")])
    words = ["--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    try:
        return _git("rev-parse", *words).strip()
    except DiagnosticError as error:
        if error.diagnostics[0].notes:
            raise
        message = f"git knows no revision '{revision}' here"
        raise DiagnosticError([Diagnostic("DFS113", message)]) from error


def _inside_repository() -> bool:
    try:
        return bool(_git("rev-parse", "--git-dir"))
    except DiagnosticError as error:
        if error.diagnostics[0].notes:
            raise
        return False


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, check=False)
    except (OSError, ValueError) as error:
        message = f"git cannot be run: {error}"
        notes = ("revisions are read with the git command",)
        raise DiagnosticError([Diagnostic("DFS113", message, notes=notes)]) from error
    if done.returncode:
        first, *_ = done.stderr.decode(errors="replace").splitlines() or [""]
        message = f"git {words[0]} failed: {first.removeprefix('fatal: ')}"
        raise DiagnosticError([Diagnostic("DFS113", message.rstrip(": "))])
    try:
        return done.stdout.decode()
    except UnicodeDecodeError as error:
        message = f"git {words[0]} gave no UTF-8 text (byte {error.start})"
        raise DiagnosticError([Diagnostic("DFS113", message)]) from error
