"""Transformers of `diffusers` that run as a schedule says, inside any pipeline.

After `schedule(pipeline.transformer, "streams.dfs")` each denoising step runs the
module of the schedule.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from diffusers import ModelMixin

from dynaflow_dsl.integrations.arguments import check_arguments, given_by
from dynaflow_dsl.integrations.denoising import DenoiserForward, Loading, kind_of
from dynaflow_dsl.integrations.errors import ScheduleError, no_model_of, without_frames
from dynaflow_dsl.integrations.forwards import (
    CallReport,
    attach,
    check_free,
    report,
    unschedule,
    until_left,
)
from dynaflow_dsl.integrations.making import Request, given_module, read
from dynaflow_dsl.resolve.model import Scalar

__all__ = ["CallReport", "report", "schedule", "scheduled", "unschedule"]

Model = TypeVar("Model", bound=ModelMixin)


@without_frames
def schedule(
    model: Model,
    schedule: str | os.PathLike[str] | ModuleType,
    *,
    folder: str | os.PathLike[str] | None = None,
    write: bool = False,
    parameters: Mapping[str, Scalar] | None = None,
    facts: Mapping[str, Scalar] | None = None,
    strict: bool = False,
    compile: bool = True,  # noqa: A002 - the name that `load` has
    cache: str | os.PathLike[str] | None = None,
    capture: bool = True,
    check: Literal["quick", "full", "none"] = "quick",
) -> Model:
    """Let a transformer run as a schedule says, until `unschedule`.

    `schedule` is a `.dfs` file, or a generated module that was imported. For a file the
    model is traced in its first call, for any number of rows and the sizes of image and
    text that this call has; a call of other sizes is traced again. The module that lies
    in `folder` (that of the project by default) is used where it equals what the
    compiler would write, as `dfsc compile --check` decides. Otherwise a module is made
    in memory, and a warning says so of one that is stale; with `write` it is written to
    the folder. `parameters` and `facts` are those of `-P` and `-F`.

    A call that is no step, such as one with a control net, runs the model's own
    forward; a warning says so once, or with `strict` it is an error (DFS831).
    `compile`, `cache`, `capture` and `check` are those of the module's `load`.

    Returns the model, whose class, weights and code stay as they are. Raises
    DiagnosticError for a schedule with errors, here or in the first call, and
    ScheduleError (DFS830) for arguments that are wrong and for models and modules that
    cannot be run so.
    """
    check_arguments(
        schedule=schedule,
        folder=folder,
        write=write,
        parameters=parameters,
        facts=facts,
        strict=strict,
        compile=compile,
        cache=cache,
        capture=capture,
        check=check,
    )
    if not isinstance(model, ModelMixin):
        raise no_model_of("diffusers", model)
    kind = kind_of(model)
    check_free(model)
    if model.training:
        raise ScheduleError(
            "DFS830", "the model is in training mode: call `model.eval()` first."
        )
    request = Request(
        None if folder is None else Path(folder), write, given_by(parameters, facts)
    )
    made = given_module(schedule) if isinstance(schedule, ModuleType) else None
    file = None if isinstance(schedule, ModuleType) else read(schedule, request)
    loading = Loading(
        {
            "compile": compile,
            "cache": cache,
            "capture": capture,
            "check": check,
            "facts": facts,
        },
        write,
    )
    attach(model, DenoiserForward(model, kind, file, made, loading, strict))
    return model


@contextmanager
def scheduled(
    model: Model, schedule: str | os.PathLike[str] | ModuleType, **options: Any
) -> Iterator[Model]:
    """`schedule` within a `with` statement; the options are the same."""
    with until_left(_schedule(model, schedule, **options)):
        yield model


# `schedule` is the name of an argument in the functions above.
_schedule = schedule
