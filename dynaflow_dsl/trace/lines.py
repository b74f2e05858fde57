"""Lines of the model's Python code, by paths that are the same on every machine."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from functools import lru_cache
from types import TracebackType

from dynaflow_dsl.graph.model import SourceLine
from dynaflow_dsl.runtime.model_code import is_model_code, relative_path

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def line_of_stack(stack: str | None) -> SourceLine | None:
    """The innermost line of model code in a stack trace as text, outermost first."""
    if not stack:
        return None
    for match in reversed(list(_FRAME.finditer(stack))):
        if is_model_code(match["file"]):
            return source_line(match["file"], int(match["line"]))
    return None


def line_of_traceback(
    traceback: TracebackType | None, counts: Callable[[str], bool] = is_model_code
) -> SourceLine | None:
    """The innermost line that an exception passed through, of the files that count."""
    found: SourceLine | None = None
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if counts(file):
            found = source_line(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


@lru_cache(maxsize=65536)
def source_line(file: str, line: int) -> SourceLine:
    """A line of a file, the file's path made relative."""
    return SourceLine(relative_path(file), line, linecache.getline(file, line).strip())
