"""What the engine calls in place of its graph, in one process or loaded from disk."""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.aot_compile_types import SerializableCallable

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.imports import of_library
from dynaflow_dsl.integrations.dynamo.calls import Bindings, GraphCall
from dynaflow_dsl.integrations.dynamo.model import Interface
from dynaflow_dsl.integrations.dynamo.modules import LoadOptions, load_step
from dynaflow_dsl.integrations.dynamo.weights import stand_in
from dynaflow_dsl.integrations.vllm.graphs import calling_model
from dynaflow_dsl.integrations.vllm.layer_names import LAYERS, define_twins
from dynaflow_dsl.integrations.vllm.pieces import Pieces, install
from dynaflow_dsl.runtime import Executor, Selected

# The engine shows what loggers of its own name say.
_log = logging.getLogger("vllm.dynaflow")


class Stale(Exception):
    """What was kept on disk is not what would be made now."""


@dataclass(frozen=True, slots=True)
class Made:
    """All that it takes to run a graph's executor again, as plain data.

    `module` is the generated module and `digest` that of its text. `layers` are names
    of layers by the positions where the engine passes them, and `operators` those of
    the engine that take one. `schedule` is the file that it was made from, `parameters`
    those that were given, and `said` the digest of what the file said then.
    """

    module: Path
    digest: str
    interface: Interface
    layers: Mapping[int, str]
    operators: tuple[str, ...]
    device: torch.device
    options: LoadOptions
    splits: bool
    schedule: str
    parameters: Mapping[str, str]
    said: str


class EngineStep(SerializableCallable):
    """Runs an executor with the inputs of the engine's graph.

    Where the engine keeps what it compiled on disk, it keeps `Made`; the module itself
    stays where it is, for people to read.
    """

    def __init__(self, made: Made) -> None:
        self.made = made
        define_twins(made.operators)
        self._call = GraphCall(made.interface, Bindings(partial(_bind, made)))
        self._layers = {
            position: LAYERS.tensor(name, made.device)
            for position, name in made.layers.items()
        }

    def __call__(self, *given: Any) -> Sequence[Any]:
        """What the graph would return for its inputs. Raises InputError, LoadError."""
        inputs = list(given)
        for position, tensor in self._layers.items():
            inputs[position] = tensor
        return self._call(*inputs)

    def finalize_loading(self, config: Any) -> None:
        """Nothing: the executor is bound when it is first called."""

    @classmethod
    def serialize_compile_artifacts(cls, compiled_fn: EngineStep) -> bytes:
        """What the engine writes to disk."""
        return pickle.dumps(compiled_fn.made)

    @classmethod
    def deserialize_compile_artifacts(cls, data: bytes) -> EngineStep:
        """The same step in another process.

        Raises Stale where the module or what it was made from changed since; the engine
        then compiles its graph anew.
        """
        made: Made = pickle.loads(data)
        file = pipeline.read_schedule(made.schedule, made.parameters).value
        if file is None or file.digest != made.said:
            raise Stale(f"{made.schedule} changed since the graph was compiled")
        if file_digest(made.module) != made.digest:
            raise Stale(f"{made.module} is not what it was compiled to")
        return cls(made)


def lasting_name(schedule: str) -> str:
    """The name of a schedule file by which a process in any folder finds it."""
    return schedule if of_library(schedule) else str(Path(schedule).absolute())


def file_digest(path: Path) -> str:
    """A digest of a file's content; empty where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _bind(made: Made, tensors: Mapping[str, torch.Tensor]) -> _Step:
    pieces = Pieces(install()) if made.splits else None
    module = import_module_file(made.module)
    # Also where the step was read from disk, the engine calls it for its model.
    model = calling_model()
    assert model is not None
    context = None if pieces is None else pieces.context
    holding = stand_in(model, tensors)
    return _Step(load_step(module, holding, made.device, made.options, context), pieces)


class _Step:
    """An executor that asks before each step whether the engine can cut it."""

    __slots__ = ("_executors", "_loaded", "_pieces", "_said", "_whole")

    def __init__(self, loaded: Executor | Selected, pieces: Pieces | None) -> None:
        self._loaded = loaded
        self._pieces = pieces
        self._executors = (
            {loaded.schedule: loaded}
            if isinstance(loaded, Executor)
            else dict(loaded.executors)
        )
        # What was said already, each once.
        self._said = False
        self._whole: set[str] = set()

    def __call__(self, *arguments: Any) -> Any:
        if self._pieces is None:
            return self._loaded(*arguments)
        first = next(iter(self._executors.values()))
        sizes: Mapping[str, Any] = first.sizes_of(arguments)
        executor, unsplit = first, False
        if isinstance(self._loaded, Selected):
            name = self._loaded.choice(**sizes)
            executor, unsplit = self._executors.get(name, first), name == "sequential"
        split = executor.split
        if not unsplit and split is not None and executor.fills(sizes):
            rows = split.slices(sizes[split.dimension])
            reason = self._pieces.open(rows)
            unsplit = bool(reason)
            self._tell(rows, reason, self._pieces.cut)
        return executor.run(arguments, sizes, sequential=unsplit)

    def _tell(self, rows: Sequence[slice], reason: str, cut: bool) -> None:
        if reason:
            if reason not in self._whole:
                self._whole.add(reason)
                _log.info("a step runs whole: %s", reason)
        elif cut and not self._said:
            self._said = True
            cuts = ", ".join(f"{piece.start}:{piece.stop}" for piece in rows)
            _log.info("steps run in pieces, the first one with tokens %s", cuts)
