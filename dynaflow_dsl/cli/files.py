"""Files that commands read and write."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import click

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.imports import LIBRARY, of_library


def schedule_files(paths: Iterable[str]) -> tuple[str, ...]:
    """The `.dfs` files that paths name, each once: a folder stands for all below it.

    Names are relative to the current folder, so that diagnostics and generated modules
    say the same wherever the checkout lies. A file that does not exist is kept: reading
    it says so. Below a folder, hidden folders and virtual environments are left out,
    and links to folders are not followed. Files of the shipped library have names of
    their own, `std:llama/halves.dfs`.
    """
    found: dict[str, None] = {}
    paths = tuple(paths)
    if "" in paths:
        raise click.UsageError("a path is empty")
    for path in paths:
        if not of_library(path) and is_folder(Path(path)):
            members = sorted(schedules_below(Path(path)))
            if not members:
                raise click.UsageError(f"no .dfs file in {relative(Path(path))}")
            found |= dict.fromkeys(map(relative, members))
        else:
            found[schedule_name(path)] = None
    return tuple(found)


def schedule_file(path: str) -> str:
    """One schedule file, by its name as `schedule_files` gives it."""
    if path and not of_library(path) and is_folder(Path(path)):
        raise click.UsageError(f"{path} is a folder: name one schedule file")
    (found,) = schedule_files([path])
    return found


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; none has a name that no file can have."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def schedules_below(folder: Path) -> Iterator[Path]:
    """The schedule files below a folder, in no order."""
    for parent, folders, names in os.walk(folder):
        here = Path(parent)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and not (here / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            if name.endswith(".dfs") and not name.startswith("."):
                yield here / name


def schedule_name(path: str | os.PathLike[str]) -> str:
    """The name of a schedule file in messages and modules.

    That is its path as seen from the current folder, or its name in the library.
    """
    name = os.fspath(path)
    return name if of_library(name) else relative(Path(name))


def relative(path: Path) -> str:
    """A path as seen from the current folder, with forward slashes."""
    return Path(os.path.relpath(path)).as_posix()


def snapshot_path(schedule: str) -> Path:
    """Where the snapshot of a schedule lies: `halves.dfs` -> `halves.graph.json`.

    That of a file of the library lies in the current folder.
    """
    path = Path(schedule.removeprefix(LIBRARY))
    return Path(path.name if of_library(schedule) else path).with_suffix(".graph.json")


def read_text(path: Path) -> str | None:
    """The text of a file, None if there is none.

    Raises DiagnosticError (DFS113) when there is one and it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 text (byte {error.start})"
    except (OSError, ValueError) as error:
        reason = reason_of(error)
    message = f"{relative(path)} cannot be read: {reason}"
    raise DiagnosticError([Diagnostic("DFS113", message)])


def reason_of(error: OSError | ValueError) -> str:
    """What the system says, in its words: a null byte in a name is a ValueError."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def write_text(path: Path, text: str) -> None:
    """Write a whole file or leave the old one: a reader never sees half of it.

    Makes the folder if needed; line ends are single newlines everywhere. Raises
    DiagnosticError (DFS506) when the system does not let it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file() and not path.is_dir():
            # A device or a pipe, such as /dev/stdout, is written to and stays.
            path.write_text(text, encoding="utf-8", newline="\n")
        else:
            # Where a link leads to is written, and not a file in place of the link.
            _replace(path.resolve() if path.is_symlink() else path, text)
    except OSError as error:
        raise not_written(path, reason_of(error)) from error


def remove(path: Path) -> None:
    """Remove a file; raises DiagnosticError (DFS506) when that is not allowed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(path, reason_of(error)) from error


def not_written(path: Path, reason: str, *helps: str) -> DiagnosticError:
    """DFS506, to be raised."""
    message = f"{relative(path)} cannot be written: {reason}"
    return DiagnosticError([Diagnostic("DFS506", message, helps=helps)])


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(_mode(path))
        temporary.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _mode(path: Path) -> int:
    # A temporary file is private to its owner; what it replaces was not.
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
