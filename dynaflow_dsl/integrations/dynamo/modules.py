"""The module of a schedule for a Dynamo graph: compiled, compared with the one on disk.

The rule is that of `dfsc compile`: a module is current while the compiler would write
the same text. But Dynamo has just captured the graph, so that the map of a current one
may say of other lines that it comes from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import relative
from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.cli.modules import ModuleFiles, ModuleText
from dynaflow_dsl.cli.repairs import BY_PROGRAM
from dynaflow_dsl.cli.staleness import compare, may_be_lost, told
from dynaflow_dsl.cli.stored import read_map
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.diagnostics.render import render
from dynaflow_dsl.integrations.dynamo.calls import Binds, Step
from dynaflow_dsl.integrations.dynamo.retrace import Retraced
from dynaflow_dsl.integrations.dynamo.weights import Structure
from dynaflow_dsl.resolve.model import ScheduleFile
from dynaflow_dsl.runtime import Executor, Selected
from dynaflow_dsl.runtime.fingerprint import without_code
from dynaflow_dsl.trace.kernels import KernelReader

_log = logging.getLogger("dynaflow_dsl")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What `load` of a generated module is called with."""

    compile: bool = True
    cache: str | None = None
    capture: bool = True

    def words(self) -> dict[str, Any]:
        """As keyword arguments."""
        return {
            "compile": self.compile,
            "cache": self.cache,
            "capture": self.capture,
        }


@dataclass(frozen=True, slots=True)
class GraphModuleFile:
    """The generated module of a graph, imported while its file was current.

    It keeps the structure of the model, and not the model with all of its weights.
    """

    module: ModuleType
    structure: Structure
    device: torch.device

    @staticmethod
    def of(
        files: ModuleFiles, structure: Structure, device: torch.device
    ) -> GraphModuleFile:
        """The module in a file; raises DiagnosticError where it cannot be imported."""
        return GraphModuleFile(import_module_file(files.module), structure, device)

    def binds(self, options: LoadOptions) -> Binds:
        """Binds the module's executor to tensors that are given."""
        return partial(_bind, self, options)


def compile_graph(
    file: ScheduleFile,
    retraced: Retraced,
    name: str | None = None,
    elsewhere: Sequence[str] = (),
) -> pipeline.CompiledModule:
    """The module of a schedule for a graph; raises DiagnosticError.

    `name` is the module's, where it is not to be called as the file says. `elsewhere`
    are names of entries that other graphs are. What is found beside errors is logged.
    """
    spec = retraced.spec
    kernels = KernelReader(spec.device, spec.dtype)
    compiled = pipeline.compile_schedules(
        file, retraced.traced, None, kernels, name, elsewhere
    )
    module = compiled.unwrap()
    for each in compiled.diagnostics:
        _log.warning("%s", render([each]))
    return module


def settle(
    files: ModuleFiles, compiled: pipeline.CompiledModule, write: str
) -> tuple[Diagnostic, ...]:
    """Make the module on disk the compiled one, as far as `write` allows it.

    "missing" writes a module that is not there, "always" one that is stale too, and
    "never" none. Gives what is wrong where the module on disk is another one and may
    not be written over: nothing where it is current.
    """
    current = ModuleText(compiled.text, compiled.map)
    stored = files.read()
    if stored == current:
        return ()
    if stored.module == current.module and _same_graph(stored.map, current.map):
        # Lines of the program have moved, or it does something else beside the model.
        if write != "never":
            files.write(current)
        return ()
    # Other ranks write the same files at the same time: of two, one may be there yet.
    # A map whose module was deleted is nobody's any more.
    missing = stored.module is None or (
        stored.module == current.module and stored.map is None
    )
    if (write == "always" or (missing and write == "missing")) and not may_be_lost(
        stored, current
    ):
        files.write(current)
        return ()
    return told(compare(relative(files.module), stored, current), BY_PROGRAM)


def _same_graph(stored: str | None, current: str | None) -> bool:
    """Whether two maps differ in where the model's code stands, and in nothing else.

    Dynamo has just captured the graph: what it is needs no digest of source files.
    """
    return _without_sources(stored) == _without_sources(current)


def _without_sources(text: str | None) -> Mapping[str, Any]:
    document = read_map(text)
    if document is None:
        return {}
    model = document.get("model")
    operations = document.get("operations")
    if not isinstance(model, dict) or not isinstance(operations, list):
        return {}
    digests = model.get("fingerprint")
    if not isinstance(digests, dict):
        return {}
    kept = {**model, "fingerprint": without_code(digests)}
    placed = [
        {key: value for key, value in each.items() if key != "source"}
        for each in operations
    ]
    return {**document, "model": kept, "operations": placed}


def _bind(
    made: GraphModuleFile, options: LoadOptions, tensors: Mapping[str, torch.Tensor]
) -> Step:
    model = made.structure.holding(tensors)
    return load_step(made.module, model, made.device, options)


def load_step(
    module: ModuleType,
    model: torch.nn.Module,
    device: torch.device,
    options: LoadOptions,
    context: Callable[[slice], AbstractContextManager[object]] | None = None,
) -> Executor | Selected:
    """The step of a generated module, bound to a model or to what holds its tensors.

    `context` makes what steps of a piece run in. Raises LoadError.
    """
    # The model's source was compared when it was traced, just before.
    loaded = module.load(
        model, device, check="none", context=context, **options.words()
    )
    assert isinstance(loaded, Executor | Selected)
    return loaded
