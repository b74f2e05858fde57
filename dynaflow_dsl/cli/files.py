"""Files that commands read and write."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import click


def schedule_files(paths: Iterable[str]) -> tuple[str, ...]:
    """The `.dfs` files that paths name, each once: a folder stands for all below it.

    Names are relative to the current folder, so that diagnostics and generated modules
    say the same wherever the checkout lies. A file that does not exist is kept: reading
    it says so.
    """
    found: dict[str, None] = {}
    paths = tuple(paths)
    if "" in paths:
        raise click.UsageError("a path is empty")
    for path in map(Path, paths):
        if path.is_dir():
            members = sorted(path.rglob("*.dfs"))
            if not members:
                raise click.UsageError(f"no .dfs file in {path}")
            found |= dict.fromkeys(map(relative, members))
        else:
            found[relative(path)] = None
    return tuple(found)


def relative(path: Path) -> str:
    """A path as seen from the current folder, with forward slashes."""
    return Path(os.path.relpath(path)).as_posix()


def snapshot_path(schedule: str) -> Path:
    """Where the snapshot of a schedule lies: `halves.dfs` -> `halves.graph.json`."""
    return Path(schedule).with_suffix(".graph.json")


def read_text(path: Path) -> str | None:
    """The text of a file, None if there is none; other failures end the command."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise click.FileError(relative(path), "it is not UTF-8") from None
    except OSError as error:
        raise click.FileError(relative(path), error.strerror or "") from error


def write_text(path: Path, text: str) -> None:
    """Write a whole file or leave the old one: a reader never sees half of it.

    Makes the folder if needed; line ends are single newlines everywhere.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text)
    except OSError as error:
        raise click.FileError(relative(path), error.strerror or "") from error


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
