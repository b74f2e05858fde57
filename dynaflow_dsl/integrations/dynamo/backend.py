"""`torch.compile(model, backend="dynaflow", options={"schedule": "halves.dfs"})`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch._guards import tracing
from torch.fx import GraphModule

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.diagnostics.render import render
from dynaflow_dsl.integrations.dynamo.frames import (
    Frame,
    NotScheduled,
    by_inductor,
    compiled_model,
    current_frame,
    names_of_inputs,
)
from dynaflow_dsl.integrations.dynamo.inner_graphs import without_inner_graphs
from dynaflow_dsl.integrations.dynamo.model import DynamoGraph
from dynaflow_dsl.integrations.dynamo.options import Options, read_options
from dynaflow_dsl.integrations.dynamo.report import GraphReport, remember
from dynaflow_dsl.integrations.dynamo.retrace import running_modules
from dynaflow_dsl.integrations.dynamo.session import (
    Scheduled,
    Unscheduled,
    session,
)
from dynaflow_dsl.integrations.dynamo.sources import Scope
from dynaflow_dsl.trace.failures import has_line

_log = logging.getLogger("dynaflow_dsl")


class ScheduleWarning(UserWarning):
    """A graph that could not be scheduled was left to Inductor."""


def dynaflow(
    graph: GraphModule,
    examples: list[Any],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend: Dynamo calls it for each graph, and the result for each step.

    Raises NotScheduled, which is a DiagnosticError, for options or a schedule that are
    wrong, and for a graph that the schedule does not fit. With `strict` off the latter
    is a ScheduleWarning, and the graph is compiled by Inductor.
    """
    try:
        chosen = _options(options, mode)
    except DiagnosticError as error:
        raise NotScheduled(error.diagnostics) from None
    frame = current_frame()
    scope = frame.scope if frame is not None else Scope({})
    model = compiled_model(scope, names_of_inputs(graph))
    note = partial(_remember, model, chosen, frame)
    try:
        # What is exported here has a context of its own.
        with tracing(None):
            found, modules = _schedule(graph, examples, chosen, frame, model)
    except DiagnosticError as error:
        said = tuple(_with_breaks(error.diagnostics, frame))
        note((), reason=said[0].message, diagnostics=said)
        if chosen.strict:
            raise NotScheduled(said) from None
        warnings.warn(
            "a graph is left to Inductor, since it cannot run as its schedule says"
            f"\n\n{render(said)}",
            ScheduleWarning,
            stacklevel=2,
        )
        return by_inductor(graph, examples)
    match found:
        case Scheduled():
            note(
                modules,
                entry=found.entry,
                module=found.module,
                parts=found.parts,
                reused=found.reused,
            )
            return found.call
        case Unscheduled(reason, diagnostics):
            said = tuple(_with_breaks(diagnostics, frame))
            note(modules, reason=reason, diagnostics=said)
            if chosen.load.compile:
                return by_inductor(graph, examples)
            return graph.forward


def _options(options: Mapping[str, object] | None, mode: str | None) -> Options:
    if mode is not None:
        raise DiagnosticError(
            [
                Diagnostic(
                    "DFS820",
                    f'the backend "dynaflow" has no mode {mode!r}: a schedule says '
                    "what is captured",
                    helps=("leave `mode` out",),
                )
            ]
        )
    return read_options(options)


def _schedule(
    graph: GraphModule,
    examples: list[Any],
    options: Options,
    frame: Frame | None,
    model: torch.nn.Module | None,
) -> tuple[Scheduled | Unscheduled, tuple[str, ...]]:
    """What becomes of a graph, and the modules that run in it."""
    scope = frame.scope if frame is not None else Scope({})
    sources = names_of_inputs(graph)
    if model is None:
        return Unscheduled("no module runs in it"), ()
    flat = without_inner_graphs(graph)
    handed = DynamoGraph(flat, tuple(examples), sources, scope, model)
    modules = running_modules(handed)
    whole = frame is None or frame.is_all_of(model)
    found = session(model, options).schedule(
        handed,
        modules,
        whole=whole,
        resumed=frame is not None and frame.resumed,
    )
    return found, tuple(sorted(modules))


def _with_breaks(
    found: Iterable[Diagnostic], frame: Frame | None
) -> Iterable[Diagnostic]:
    """Beside what is wrong with a graph, of which function it is a part.

    What has no place in the schedule or the model has that of the function.
    """
    notes = []
    if frame is not None and frame.resumed:
        notes.append(f"this graph goes on with {frame.function} after a graph break")
    if frame is not None and frame.broken is not None:
        notes.append(f"this graph ends in a graph break: {frame.broken}")
    for item in found:
        mine = notes
        placed = item.primary is not None or item.about is not None
        if frame is not None and not placed and not has_line(item):
            place = f"{frame.place.file}:{frame.place.line}"
            mine = [f"in a call of {frame.function} ({place})", *notes]
        yield replace(item, notes=(*item.notes, *mine))


def _remember(
    model: torch.nn.Module | None,
    options: Options,
    frame: Frame | None,
    modules: tuple[str, ...],
    **what: Any,
) -> None:
    graph = GraphReport(
        options.schedule,
        frame.function if frame is not None else "a graph",
        frame.place if frame is not None else None,
        frame is not None and frame.resumed,
        str(frame.broken) if frame is not None and frame.broken is not None else None,
        modules,
        **what,
    )
    remember(graph, model)
    _log.info("%s", graph)


def register() -> None:
    """Make the backend known by its name, where no installation did."""
    if "dynaflow" not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(compiler_fn=dynaflow, name="dynaflow")
