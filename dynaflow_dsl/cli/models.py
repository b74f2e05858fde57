"""Loading and tracing a model, for the commands that run one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynaflow_dsl.bind import ReadsKernels
from dynaflow_dsl.cli.foreign import user_code
from dynaflow_dsl.cli.options import ChosenModel, stored_name
from dynaflow_dsl.cli.report import Reporter
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.imports import project_root


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A trace target and its graph. `spec` is a TraceSpec, whose class needs torch."""

    spec: Any
    traced: TracedModel

    def arguments(self, entry: str, sizes: Mapping[str, int]) -> Sequence[Any]:
        """Arguments of an entry for these sizes, made by the target.

        Phases that have no size share the rows. Dimensions that the entry has not are
        as it was traced with them: the target's code may ask for them all.

        Raises DiagnosticError (DFS110) when its code fails.
        """
        # Imports torch, which has been imported when there is a loaded model.
        from dynaflow_dsl.trace.arguments import example_sizes

        traced = example_sizes(self.spec)
        with user_code(f"making arguments of the entry '{entry}'"):
            made: Sequence[Any] = self.spec.entries[entry].make({**traced, **sizes})
        return made


def load_model(reporter: Reporter, chosen: ChosenModel) -> LoadedModel | None:
    """Load the target and trace every entry; None after errors were shown.

    Imports torch and the user's module.
    """
    # Torch takes a second to import: only commands that need a model wait for it.
    from dynaflow_dsl.trace import load_target, trace

    target = located(chosen.target)
    loaded = load_target(target, chosen.arguments, chosen.span, chosen.given)
    reporter.show(loaded.diagnostics)
    if loaded.value is None or not loaded.ok:
        return None
    traced = trace(loaded.value, stored_name(chosen.target), chosen.arguments)
    reporter.show(traced.diagnostics)
    if traced.value is None or not traced.ok:
        return None
    return LoadedModel(loaded.value, traced.value)


def located(target: str) -> str:
    """A target whose file is found from a folder inside the project as well.

    Paths are relative to the current folder, and else to the root of its project, where
    most commands are run.
    """
    place, _, function = target.rpartition(":")
    path = Path(place)
    if path.suffix != ".py" or path.is_absolute() or path.exists():
        return target
    root = project_root(Path.cwd() / "here")
    found = root / path if root is not None else path
    return f"{found}:{function}" if found.is_file() else target


def kernel_reader(loaded: LoadedModel) -> ReadsKernels:
    """Imports the kernels that parts of a schedule of this model run through."""
    from dynaflow_dsl.trace.kernels import KernelReader

    return KernelReader(loaded.spec.device, loaded.spec.dtype)
