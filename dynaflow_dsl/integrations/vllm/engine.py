"""The backend that vLLM's configuration names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.registry import lookup_backend
from torch._guards import tracing
from torch.fx import GraphModule

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import relative, schedule_name
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.diagnostics.render import render
from dynaflow_dsl.integrations.dynamo.frames import NotScheduled
from dynaflow_dsl.integrations.dynamo.modules import compile_graph, settle
from dynaflow_dsl.integrations.dynamo.places import module_files
from dynaflow_dsl.integrations.schedules import check_runs_one
from dynaflow_dsl.integrations.vllm.config import (
    check_splits,
    facts_of,
    in_config,
    options_of,
)
from dynaflow_dsl.integrations.vllm.graphs import (
    calling_model,
    device_of,
    read_graph,
    trace_graph,
)
from dynaflow_dsl.integrations.vllm.operators import know_operators
from dynaflow_dsl.integrations.vllm.step import (
    EngineStep,
    Made,
    file_digest,
    lasting_name,
)

# The engine shows what loggers of its own name say.
_log = logging.getLogger("vllm.dynaflow")

# What the engine calls the graph of the model itself, beside drafts and encoders.
_BACKBONE = "backbone"


def backend(graph: GraphModule, examples: list[Any]) -> Callable[..., Any]:
    """Run the engine's graph as its schedule says.

    The engine calls this once for each model that it compiles. Graphs of drafts and
    encoders, which schedules say nothing of, are Inductor's. Raises NotScheduled, a
    DiagnosticError, for a configuration or schedule that is wrong and for a graph that
    the schedule does not fit: the engine does not start.
    """
    model = calling_model()
    try:
        if model is None:
            raise _outside()
        if _tag(model) != _BACKBONE:
            inductor: Callable[..., Any] = lookup_backend("inductor")(graph, examples)
            return inductor
        # What is exported here has a context of its own.
        with tracing(None):
            return _scheduled(graph, examples, model)
    except DiagnosticError as error:
        _log.error("%s", render(error.diagnostics))
        raise NotScheduled(error.diagnostics) from None


def _scheduled(
    graph: GraphModule, examples: list[Any], model: torch.nn.Module
) -> EngineStep:
    know_operators()
    config: Any = model.vllm_config
    options = options_of(config)
    path = schedule_name(options.schedule)
    file = pipeline.read_schedule(path, options.parameters, in_config).unwrap()
    check_runs_one(file, path, "DFS821")
    check_splits(file, config)
    engine = read_graph(graph, examples, model)
    most = config.scheduler_config.max_num_batched_tokens
    facts = {**facts_of(config), **options.meaning.facts}
    retraced = trace_graph(engine.graph, most, facts)
    compiled = compile_graph(file, retraced)
    files = module_files(options.module, compiled.name)
    if found := settle(files, compiled, options.write):
        raise DiagnosticError(found)
    _log.info("%s runs as %s says", type(model).__name__, relative(files.module))
    return EngineStep(
        Made(
            files.module.absolute(),
            file_digest(files.module),
            retraced.interface,
            engine.layers,
            engine.operators,
            device_of(examples),
            options.load,
            any(binding.schedule.split is not None for binding in compiled.bindings),
            lasting_name(options.schedule),
            options.parameters,
            file.digest,
        )
    )


def _tag(model: torch.nn.Module) -> str:
    return str(getattr(model, "_compile_tag", _BACKBONE))


def _outside() -> DiagnosticError:
    return DiagnosticError(
        [
            Diagnostic(
                "DFS820",
                "this backend compiles graphs of vLLM alone",
                helps=('elsewhere: torch.compile(model, backend="dynaflow", ...)',),
            )
        ]
    )
