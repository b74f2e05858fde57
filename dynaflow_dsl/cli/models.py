"""Loading and tracing a model, for the commands that run one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynaflow_dsl.bind import ReadsKernels
from dynaflow_dsl.cli.options import ChosenModel, stored_name
from dynaflow_dsl.cli.report import Reporter
from dynaflow_dsl.graph.model import TracedModel


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A trace target and its graph. `spec` is a TraceSpec, whose class needs torch."""

    spec: Any
    traced: TracedModel


def load_model(reporter: Reporter, chosen: ChosenModel) -> LoadedModel | None:
    """Load the target and trace every entry; None after errors were shown.

    Imports torch and the user's module.
    """
    # Torch takes a second to import: only commands that need a model wait for it.
    from dynaflow_dsl.trace import load_target, trace

    loaded = load_target(chosen.target, chosen.arguments, chosen.span)
    reporter.show(loaded.diagnostics)
    if loaded.value is None or not loaded.ok:
        return None
    traced = trace(loaded.value, stored_name(chosen.target), chosen.arguments)
    reporter.show(traced.diagnostics)
    if traced.value is None or not traced.ok:
        return None
    return LoadedModel(loaded.value, traced.value)


def kernel_reader(loaded: LoadedModel) -> ReadsKernels:
    """Imports the kernels that parts of a schedule of this model run through."""
    from dynaflow_dsl.trace.kernels import KernelReader

    return KernelReader(loaded.spec.device, loaded.spec.dtype)
