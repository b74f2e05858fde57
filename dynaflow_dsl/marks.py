"""Names for regions of a model's code, which schedules select with `"mark:name" in`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from typing import Literal, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# How the keys begin under which Dynamo keeps marks beside a call.
ANNOTATION = "dynaflow.mark:"

_NAME = re.compile(r"[A-Za-z0-9_./-]+")


class Recorder:
    """The marks that are open in one thread while it traces, outermost first."""

    __slots__ = ("open", "thread")

    def __init__(self) -> None:
        self.open: list[str] = []
        self.thread = get_ident()


# A plain global, so that a mark outside of tracing is one comparison, and code that
# compiles the model otherwise (`torch.compile`) sees a constant.
_recorder: Recorder | None = None


class Mark:
    """What `mark` returns: a context manager, and a decorator for functions.

    It keeps nothing of its own, so that one may be entered again while it is open.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Mark:
        recorder = _recorder
        if recorder is not None and recorder.thread == get_ident():
            recorder.open.append(self.name)
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        recorder = _recorder
        if recorder is not None and recorder.thread == get_ident():
            recorder.open.pop()
        return False

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function with all that it does under this mark."""
        name = self.name

        @wraps(function)
        def marked(*arguments: P.args, **keywords: P.kwargs) -> R:
            # A mark of this call's own: `torch.compile` enters no object from outside.
            with mark(name):
                return function(*arguments, **keywords)

        return marked


def mark(name: str) -> Mark:
    """Name the operations that run inside, for schedules.

    It is a context manager, `with mark("gate"):`, and a decorator, `@mark("gate")`. A
    schedule selects them with `"mark:gate" in PATH`. Marks may be nested, an
    operation then has all of their names, and one name may stand in many places. A mark
    changes nothing of what runs and is looked at by the tracer alone.

    `name` consists of ASCII letters, digits and `_ . / -`; anything else raises
    ValueError.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name of a mark: it has letters, digits and _ . / - only"
        )
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_dynamo_compiling():
        # Dynamo keeps what is annotated beside every call that it writes down.
        annotation: Mark = torch.fx.traceback.annotate({ANNOTATION + name: True})
        return annotation
    return Mark(name)


@contextmanager
def recording() -> Iterator[Recorder]:
    """Collect the marks that this thread opens; for the tracer, which is not nested."""
    global _recorder
    before, _recorder = _recorder, Recorder()
    try:
        yield _recorder
    finally:
        _recorder = before
