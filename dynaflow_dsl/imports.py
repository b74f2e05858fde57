"""Where the files are that schedules import: beside them, or in the shipped library."""

from __future__ import annotations

import difflib
import posixpath
from pathlib import Path

from dynaflow_dsl.resolve import Reader, Unreadable
from dynaflow_dsl.resources import folder
from dynaflow_dsl.source import Source

LIBRARY = "std:"

# Far more than anybody writes; a file of this size is no schedule.
MAX_BYTES = 1_000_000

ALLOWED = (
    'a path is relative to the file that imports, such as "parts.dfs", or begins with '
    f'"{LIBRARY}" for the shipped library'
)


def project_root(path: Path) -> Path | None:
    """The nearest folder above with a `pyproject.toml` or `.git`; None without one."""
    for parent in path.parents:
        if (parent / "pyproject.toml").exists() or (parent / ".git").exists():
            return parent
    return None


def of_library(name: str) -> bool:
    """Whether a name is that of a file of the shipped library."""
    return name.startswith(LIBRARY)


def library_file(name: str) -> tuple[Path, str] | Unreadable:
    """A file of the shipped library, and its plain name: `std:llama/halves.dfs`.

    That name is the same wherever the package is installed.
    """
    library = folder("schedules").resolve()
    inside = posixpath.normpath(name.removeprefix(LIBRARY))
    path = (library / inside).resolve()
    if not path.is_relative_to(library):
        return Unreadable("it lies outside the shipped library", (ALLOWED,))
    if not path.is_file():
        files = sorted(library.rglob("*.dfs"))
        names = [f"{LIBRARY}{file.relative_to(library).as_posix()}" for file in files]
        close = difflib.get_close_matches(f"{LIBRARY}{inside}", names, n=1)
        more = ", ..." if len(names) > 5 else ""
        shown = f"the library has {', '.join(names[:5])}{more}"
        helps = tuple(f"did you mean '{other}'?" for other in close) or (shown,)
        return Unreadable("there is no such file", helps)
    return path, f"{LIBRARY}{inside}"


def file_reader(main: Source) -> Reader:
    """Reads what the file of a source imports, and what those files import.

    Nothing outside the main file's project is read, nor outside its folder when it is
    of no project; links count as what they lead to. One file is one source.
    """
    found = library_file(main.name) if of_library(main.name) else None
    start = found[0] if isinstance(found, tuple) else Path(main.name).absolute()
    root = (project_root(start) or start.parent).resolve()
    known: dict[Path, Source] = {start.resolve(): main}

    def read(importer: Source, name: str) -> Source | Unreadable:
        try:
            return _read(importer, name, root, known)
        except OSError as error:
            return Unreadable(error.strerror or type(error).__name__)
        except UnicodeDecodeError as error:
            return Unreadable(f"it is not UTF-8 text (byte {error.start})")
        except (ValueError, RuntimeError) as error:
            # A null byte in the name, or links that lead to each other.
            return Unreadable(str(error))

    return read


def _read(
    importer: Source, name: str, root: Path, known: dict[Path, Source]
) -> Source | Unreadable:
    if of_library(name) or of_library(importer.name):
        return _read_library(importer, name, known)
    if not name or "\\" in name or Path(name).is_absolute() or ":" in name:
        return Unreadable("this is no relative path", (ALLOWED,))
    shown = posixpath.normpath(posixpath.join(posixpath.dirname(importer.name), name))
    path = Path(shown).resolve()
    if not path.is_relative_to(root):
        return Unreadable(
            "it lies outside the project",
            (
                "a project is the nearest folder above with a pyproject.toml or .git; "
                "without one, imports stay in the folder of the file",
            ),
        )
    return _source(path, shown, known)


def _read_library(
    importer: Source, name: str, known: dict[Path, Source]
) -> Source | Unreadable:
    if not of_library(name):
        home = posixpath.dirname(importer.name.removeprefix(LIBRARY))
        name = f"{LIBRARY}{posixpath.join(home, name)}"
    found = library_file(name)
    return found if isinstance(found, Unreadable) else _source(*found, known)


def _source(path: Path, name: str, known: dict[Path, Source]) -> Source | Unreadable:
    if path in known:
        return known[path]
    if not path.exists():
        return Unreadable("there is no such file", _similar(path, name))
    if not path.is_file():
        return Unreadable("it is no file")
    if path.stat().st_size > MAX_BYTES:
        return Unreadable(f"it has more than {MAX_BYTES} bytes")
    known[path] = Source(name, path.read_text("utf-8"))
    return known[path]


def _similar(path: Path, name: str) -> tuple[str, ...]:
    """What the folder has instead, so that a misspelt name is seen."""
    if not path.parent.is_dir():
        return (f"there is no folder {posixpath.dirname(name) or '.'}",)
    others = [file.name for file in sorted(path.parent.glob("*.dfs"))]
    close = difflib.get_close_matches(path.name, others, n=1)
    return tuple(f"did you mean '{other}'?" for other in close)
