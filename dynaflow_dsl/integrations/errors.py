"""What scheduling a library's model refuses, and how that is shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.runtime import RuntimeFault
from dynaflow_dsl.trace.model import TraceSpec

P = ParamSpec("P")
T = TypeVar("T")


class ScheduleError(RuntimeFault):
    """A model of a library cannot run as a schedule says.

    DFS830: the model, the schedule or the module is not of a kind that the library's
    loop can run. DFS831: a call cannot run scheduled, and it was asked to be an error.
    """


def no_model_of(library: str, given: object) -> ScheduleError:
    """What is given is no model of a library; a trace target's spec holds one."""
    message = f"a {type(given).__name__} is no model of {library}."
    if isinstance(given, TraceSpec):
        message += " Its model is `spec.model`."
    return ScheduleError("DFS830", message)


def without_frames(function: Callable[P, T]) -> Callable[P, T]:
    """Show what a function refuses without the functions that found it out.

    A refusal is about the caller's files and model, and says where: where in this
    package it was raised helps nobody. Any other exception has its whole traceback.
    """

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except (DiagnosticError, RuntimeFault) as error:
            raise error.with_traceback(None) from error.__cause__

    return called
