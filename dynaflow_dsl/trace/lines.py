"""Lines of the model's Python code, by paths that are the same on every machine."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path, PurePath
from types import TracebackType

import torch

from dynaflow_dsl.graph.model import SourceLine

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_PACKAGES = ("site-packages", "dist-packages")
_TORCH = str(Path(torch.__file__).parent)
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]


def line_of_stack(stack: str | None) -> SourceLine | None:
    """The innermost line of model code in a stack trace as text, outermost first."""
    if not stack:
        return None
    for match in reversed(list(_FRAME.finditer(stack))):
        if is_model_code(match["file"]):
            return source_line(match["file"], int(match["line"]))
    return None


def line_of_traceback(traceback: TracebackType | None) -> SourceLine | None:
    """The innermost line of model code that an exception passed through."""
    found: SourceLine | None = None
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if is_model_code(file):
            found = source_line(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


@lru_cache(maxsize=4096)
def is_model_code(file: str) -> bool:
    """Whether a file is neither torch's, the standard library's, nor this room's."""
    if file.startswith("<") or _inside(file, _TORCH):
        return False
    if _inside(file, str(Path(__file__).parent)):
        return False
    return not _inside(file, _STANDARD_LIBRARY) or _in_packages(file)


@lru_cache(maxsize=65536)
def source_line(file: str, line: int) -> SourceLine:
    """A line of a file, the file's path made relative."""
    return SourceLine(relative_path(file), line, linecache.getline(file, line).strip())


@lru_cache(maxsize=4096)
def relative_path(file: str) -> str:
    """A path below the folder of packages, the current folder or the import path.

    Files elsewhere keep their name alone, so that no machine's folders show.
    """
    path = PurePath(file)
    for folder in _PACKAGES:
        if folder in path.parts:
            last = len(path.parts) - 1 - path.parts[::-1].index(folder)
            return PurePath(*path.parts[last + 1 :]).as_posix()
    package = Path(__file__).parents[2]
    for root in (package, Path.cwd(), *map(Path, filter(None, sys.path))):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return path.name


def _inside(file: str, folder: str) -> bool:
    return PurePath(file).is_relative_to(folder)


def _in_packages(file: str) -> bool:
    return any(folder in PurePath(file).parts for folder in _PACKAGES)
