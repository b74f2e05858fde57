"""Exceptions that no stage expected, in words."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.resources import PACKAGE


def internal_error(error: Exception) -> Diagnostic:
    """DFS900: an exception that no stage expected; its traceback goes to stderr on
    request. DFS110 where code of the user's raised it, which may be called anywhere.
    """
    if os.environ.get("DFSC_TRACEBACK") == "1":
        traceback.print_exception(error)
    said = said_by(error)
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    if (place := _of_the_user(frames)) is not None:
        return Diagnostic(
            "DFS110",
            f"code of the model or its target raised {said}",
            notes=(f"in {place}",),
        )
    ours = [(file, n) for file, n in frames if file.is_relative_to(PACKAGE)]
    notes = tuple(
        f"in {file.relative_to(PACKAGE.parent).as_posix()}, line {number}"
        for file, number in ours[-1:]
    )
    return Diagnostic(
        code="DFS900",
        message=f"dfsc failed where it should not: {said}",
        notes=notes,
        helps=(
            "this is a defect of dfsc: please report it with the file that shows it",
            "run again with DFSC_TRACEBACK=1 for the traceback",
        ),
    )


def said_by(error: BaseException) -> str:
    """The kind of an exception, and the first line of what it says."""
    try:
        text = str(error)
    except Exception:  # a class of somebody else's
        text = "(it cannot say what)"
    first, *_ = text.splitlines() or [""]
    return f"{type(error).__name__}: {first}".rstrip(": ")


def _of_the_user(frames: Sequence[tuple[Path, int | None]]) -> str | None:
    """The innermost line of the user's code, if the exception came out of that.

    Below it may be libraries that it called, and nothing of this package.
    """
    library = Path(sysconfig.get_paths()["stdlib"])
    for file, number in reversed(frames):
        if file.is_relative_to(PACKAGE):
            return None
        installed = {"site-packages", "dist-packages"} & set(file.parts)
        if installed or file.is_relative_to(library) or not file.is_file():
            continue
        return f"{os.path.relpath(file)}, line {number}"
    return None
