"""Which Python files are a model's code, and their paths without the machine."""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path, PurePath

import torch

_PACKAGES = ("site-packages", "dist-packages")
_TORCH = str(Path(torch.__file__).parent)
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
_OWN = tuple(
    str(Path(__file__).parents[1] / room)
    for room in ("integrations", "runtime", "trace", "marks.py")
)


@lru_cache(maxsize=4096)
def is_model_code(file: str) -> bool:
    """Whether a file is neither torch's, the standard library's, nor the tracer's."""
    if file.startswith("<") or _inside(file, _TORCH):
        return False
    if any(_inside(file, room) for room in _OWN):
        return False
    return not _inside(file, _STANDARD_LIBRARY) or _in_packages(file)


@lru_cache(maxsize=4096)
def is_own_code(file: str) -> bool:
    """Whether a file of model code belongs to the user: to no package that is
    installed, and not to this one.
    """
    own = Path(__file__).parents[1]
    return (
        is_model_code(file) and not _in_packages(file) and not _inside(file, str(own))
    )


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
