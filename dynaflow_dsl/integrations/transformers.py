"""Hugging Face language models that run as a schedule says, inside `generate()`.

After `schedule(model, "halves.dfs")` calls of the model that are a prefill or a decode
step run the module of the schedule; all others run the model's own forward, on the same
cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from transformers import PreTrainedModel

from dynaflow_dsl.cli.stored import IN_MEMORY
from dynaflow_dsl.integrations.agreement import disagreement
from dynaflow_dsl.integrations.arguments import check_arguments, given_by
from dynaflow_dsl.integrations.decoding import DecoderForward, Lengths, lengths_of
from dynaflow_dsl.integrations.errors import ScheduleError, no_model_of, without_frames
from dynaflow_dsl.integrations.forwards import (
    CallReport,
    attach,
    check_free,
    report,
    unschedule,
    until_left,
)
from dynaflow_dsl.integrations.making import (
    MadeModule,
    ReadSchedule,
    Request,
    Target,
    executors_of,
    given_module,
    make,
    read,
    steps_of,
    tell_stale,
)
from dynaflow_dsl.models.decoder import decoder_spec
from dynaflow_dsl.models.pretrained import usual_capacity
from dynaflow_dsl.resolve.model import Scalar

__all__ = ["CallReport", "report", "schedule", "scheduled", "unschedule"]

Model = TypeVar("Model", bound=PreTrainedModel)


@without_frames
def schedule(
    model: Model,
    schedule: str | os.PathLike[str] | ModuleType,
    *,
    capacity: int | None = None,
    sequence: int | None = None,
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
    """Let a causal language model run as a schedule says, until `unschedule`.

    `schedule` is a `.dfs` file, or a generated module that was imported. For a file the
    model is traced, for prompts of any length and decode steps, with a cache of
    `capacity` places. With `sequence` prompts run in pieces of that many tokens, the
    first one padded, so that they all have one shape.

    The module that lies in `folder` (that of the project by default) is used where it
    equals what the compiler would write, as `dfsc compile --check` decides; the lengths
    in it go before the usual ones. Otherwise a module is made in memory, and a warning
    says so of one that is stale; with `write` it is written to the folder. `parameters`
    and `facts` are those of `-P` and `-F`.

    A text longer than `capacity` goes on by the model's own forward, and so does any
    call that is no step, such as one that asks for hidden states; a warning says so
    once, or with `strict` it is an error (DFS831). `compile`, `cache`, `capture` and
    `check` are those of the module's `load`.

    Returns the model, whose class, weights and code stay as they are. Raises
    DiagnosticError for a schedule that does not fit the model, ScheduleError (DFS830)
    for arguments that are wrong and for models and modules that cannot be run so, and
    LoadError.
    """
    check_arguments(
        schedule=schedule,
        capacity=capacity,
        sequence=sequence,
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
    _check_model(model)
    check_free(model)
    request = Request(_path(folder), write, given_by(parameters, facts))
    made = _made(model, schedule, capacity, sequence, request)
    lengths = lengths_of(_inputs(made.module), made.name)
    if isinstance(schedule, ModuleType):
        _check_agreement(model, lengths.capacity)
    loaded = made.module.load(
        model,
        model.device,
        compile=compile,
        cache=cache,
        capture=capture,
        check=check,
        facts=facts,
    )
    steps = steps_of(loaded, made.name)
    attach(model, DecoderForward(model, made, steps, lengths, strict))
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


def _made(
    model: PreTrainedModel,
    schedule: str | os.PathLike[str] | ModuleType,
    capacity: int | None,
    sequence: int | None,
    request: Request,
) -> MadeModule:
    """The module to run: the one given, the committed one, or one made now."""
    if isinstance(schedule, ModuleType):
        return given_module(schedule)
    known = read(schedule, request)
    prompts: int | Literal["any"] | None = sequence or "any"
    decode = True
    if (stored := _stored_lengths(known)) is not None:
        capacity = stored.capacity if capacity is None else capacity
        prompts, decode = sequence or stored.prompts, stored.decode
    if capacity is None:
        capacity = usual_capacity(model.config.get_text_config())
    try:
        spec = decoder_spec(model, capacity=capacity, sequence=prompts, decode=decode)
    except ValueError as error:
        raise ScheduleError("DFS830", f"{error}.") from error
    # Tracing and compiling take much longer.
    _check_agreement(model, capacity)
    made = make(known, spec, _target(model, capacity, prompts), write=request.write)
    tell_stale(made)
    return made


def _stored_lengths(known: ReadSchedule) -> Lengths | None:
    """The lengths of the module on disk; None for one of other steps: it is stale."""
    if not known.stored.inputs:
        return None
    try:
        return lengths_of(known.stored.inputs, known.stored.files.module.name)
    except ScheduleError:
        return None


def _check_agreement(model: PreTrainedModel, capacity: int) -> None:
    """Refuse a model that the adapter of decoders calls otherwise than `generate()`."""
    try:
        difference = disagreement(model, capacity)
    except ValueError as error:
        raise ScheduleError("DFS830", f"{error}.") from error
    if difference is not None:
        raise ScheduleError(
            "DFS830",
            f"{type(model).__name__} is called in another way than the adapter of "
            f"decoders calls it: {difference}.",
        )


def _target(
    model: PreTrainedModel, capacity: int, prompts: int | Literal["any"] | None
) -> Target:
    """The target that makes the same model again: one saved somewhere, by its path."""
    path = model.config._name_or_path
    arguments: dict[str, Scalar] = {"capacity": capacity}
    if isinstance(prompts, int):
        arguments["sequence"] = prompts
    if not path:
        return Target(IN_MEMORY, {})
    return Target("dynaflow_dsl.models.pretrained:serve", {"path": path, **arguments})


def _check_model(model: object) -> None:
    if not isinstance(model, PreTrainedModel):
        raise no_model_of("transformers", model)
    if not model.can_generate() or model.config.is_encoder_decoder:
        raise ScheduleError(
            "DFS830",
            f"{type(model).__name__} is no causal language model: `generate()` of it "
            "takes other steps than prefill and decode.",
        )
    if model.device.type == "meta":
        raise ScheduleError(
            "DFS830",
            "the model is on `meta`, where it has no memory: load its weights.",
        )
    if model.training:
        raise ScheduleError(
            "DFS830", "the model is in training mode: call `model.eval()` first."
        )


def _inputs(module: ModuleType) -> dict[str, Mapping[str, Any]]:
    return {name: kind.inputs for name, kind in executors_of(module).items()}


def _path(folder: str | os.PathLike[str] | None) -> Path | None:
    return None if folder is None else Path(folder)
