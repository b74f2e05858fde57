"""Traces a model that is about to run, to compare it with the one a module is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from dynaflow_dsl.diagnostics import Result
from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.trace.model import Scalar
from dynaflow_dsl.trace.target import load_target
from dynaflow_dsl.trace.tracing import trace


@dataclass(frozen=True, slots=True)
class TracedAgain:
    """Digests of the graphs by entry, and the facts that the target says."""

    graphs: Mapping[str, str]
    facts: Mapping[str, Scalar]


def trace_again(
    target: str,
    arguments: Mapping[str, Scalar],
    model: torch.nn.Module,
    device: str,
    dtype: torch.dtype,
) -> Result[TracedAgain]:
    """Trace `model` as the target says that its own model is traced.

    The target's model is made as well, and dropped.
    """
    loaded = load_target(target, arguments, None)
    if loaded.value is None or not loaded.ok:
        return Result(None, loaded.diagnostics)
    spec = replace(loaded.value, model=model, device=device, dtype=dtype)
    traced = trace(spec, target, arguments)
    if traced.value is None or not traced.ok:
        return Result(None, traced.diagnostics)
    graphs = {graph.entry: graph_digest(graph) for graph in traced.value.graphs}
    return Result(TracedAgain(graphs, dict(traced.value.facts)))
