"""Exceptions that no stage expected, in words."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.resources import PACKAGE


def internal_error(error: Exception) -> Diagnostic:
    """DFS900: an exception that no stage expected; its traceback goes to stderr on
    request.
    """
    if os.environ.get("DFSC_TRACEBACK") == "1":
        traceback.print_exception(error)
    kind = type(error).__name__
    first, *_ = str(error).splitlines() or [""]
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    ours = [(file, n) for file, n in frames if file.is_relative_to(PACKAGE)]
    notes = tuple(
        f"in {file.relative_to(PACKAGE.parent).as_posix()}, line {number}"
        for file, number in ours[-1:]
    )
    return Diagnostic(
        code="DFS900",
        message=f"dfsc failed where it should not: {kind}: {first}".rstrip(": "),
        notes=notes,
        helps=(
            "this is a defect of dfsc: please report it with the file that shows it",
            "run again with DFSC_TRACEBACK=1 for the traceback",
        ),
    )
