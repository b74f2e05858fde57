"""Under which functions and marks of the model's code each call was traced.

Stack traces are what torch carries from a call to its node through all rewrites, so the
context of a call travels as one more frame of its stack trace, which names a number.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from traceback import FrameSummary
from types import CodeType, FrameType

from dynaflow_dsl.marks import Recorder
from dynaflow_dsl.runtime.model_code import is_model_code
from dynaflow_dsl.trace.target import LOADED_FROM_FILE

_FILE = "<context>"
_NUMBER = re.compile(rf'File "{_FILE}", line (\d+)')


@dataclass(frozen=True, slots=True)
class Context:
    """Qualified names of functions and names of marks, outermost first, each once."""

    functions: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


class ContextRecorder:
    """Contexts of calls, as they come; `marks` are those that are open now."""

    def __init__(self, marks: Recorder, outermost: CodeType) -> None:
        self.marks = marks
        self.outermost = outermost
        self.numbers: dict[Context, int] = {}

    def frame(self) -> FrameSummary:
        """A frame that names the context of whoever calls."""
        found = Context(
            tuple(_functions(sys._getframe(1), self.outermost)),
            tuple(dict.fromkeys(self.marks.open)),
        )
        number = self.numbers.setdefault(found, len(self.numbers))
        # A line of its own keeps `traceback` from looking for the file.
        return FrameSummary(_FILE, number + 1, "context", line="")

    def contexts(self) -> tuple[Context, ...]:
        """All contexts by number."""
        return tuple(self.numbers)


def context_frame(number: int) -> str:
    """The frame that names a context, as text of a stack trace."""
    return f'  File "{_FILE}", line {number + 1}, in context\n'


def context_of(stack: str | None, contexts: Sequence[Context]) -> Context:
    """The context that a stack trace names; an empty one where it names none."""
    match = _NUMBER.search(stack or "")
    return contexts[int(match[1]) - 1] if match else Context()


def _functions(frame: FrameType | None, outermost: CodeType) -> list[str]:
    found: dict[str, None] = {}
    while frame is not None and frame.f_code is not outermost:
        if is_model_code(frame.f_code.co_filename):
            module = frame.f_globals.get("__name__")
            if name := _qualified(str(module or ""), frame.f_code):
                found[name] = None
        frame = frame.f_back
    return list(found)[::-1]


@lru_cache(maxsize=4096)
def _qualified(module: str, code: CodeType) -> str:
    """`package.module.Class.method`, a function inside another as `outer.inner`.

    Empty for what has no name of its own: lambdas, comprehensions and modules. What
    they do counts to the function around them.
    """
    names = [name for name in code.co_qualname.split(".") if not name.startswith("<")]
    if code.co_name.startswith("<"):
        return ""
    # A file that is no module of a package has a name made up for it, or none.
    if module == "__main__" or module.startswith(LOADED_FROM_FILE):
        module = PurePath(code.co_filename).stem
    return ".".join((module, *names))
