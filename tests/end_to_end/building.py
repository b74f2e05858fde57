"""From the text of a schedule to an imported module, as the command line does it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from torch.export import ExportedProgram

from dynaflow_dsl import pipeline
from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.cli.verify import row_claims
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import TraceSpec, export_entry, trace
from dynaflow_dsl.trace.kernels import KernelReader
from dynaflow_dsl.verification.report import Report
from dynaflow_dsl.verification.verify import proportional_pieces, verify
from tests.verification.mutations import import_module, write_module

HALVES = """dfs 1

schedule {name}:
    stream side

    split batch into {pieces} as half

    each layer in .model.layers.*:
        part attn on {attn} = .input_layernorm + .self_attn
        part mlp on {mlp} = rest

        stagger half by 1:
            attn
            mlp
"""


def halves(
    name: str = "halves", pieces: str = "2", attn: str = "side", mlp: str = "main"
) -> str:
    """Attention of one piece beside the MLP of another."""
    return HALVES.format(name=name, pieces=pieces, attn=attn, mlp=mlp)


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled module, and what it was made from."""

    spec: TraceSpec
    compiled: pipeline.CompiledModule
    module: ModuleType
    folder: Path
    exported: dict[str, ExportedProgram] = field(default_factory=dict)

    def program(self, entry: str) -> ExportedProgram:
        """The exported program of an entry, made once."""
        if entry not in self.exported:
            self.exported[entry] = export_entry(self.spec, entry)
        return self.exported[entry]

    def mutated(self, text: str) -> ModuleType:
        """The module with another text, beside its map."""
        document = json.loads(self.compiled.map)
        return write_module(self.folder, f"{self.compiled.name}_m", text, document)


def build(spec: TraceSpec, text: str, folder: Path) -> Built:
    """Compile a schedule for a target; every finding is a failure."""
    file = pipeline.understand(Source("test.dfs", text)).unwrap()
    traced = trace(spec, "tests:target", {}).unwrap()
    reader = KernelReader(spec.device, spec.dtype)
    compiled = pipeline.compile_schedules(file, traced, None, reader).unwrap()
    path = folder / f"{compiled.name}.py"
    path.write_text(compiled.text, encoding="utf-8")
    path.with_suffix(".map.json").write_text(compiled.map, encoding="utf-8")
    return Built(spec, compiled, import_module(path), folder)


def run_verify(
    built: Built,
    *,
    module: ModuleType | None = None,
    batches: Sequence[int] = (1, 2, 3, 5),
    compiled: bool = False,
    **options: Any,
) -> list[Report]:
    """One report per entry: reference, untouched model, recorded streams."""
    return [
        verify(
            module or built.module,
            built.spec.model,
            _arguments(built.spec, binding),
            built.program(binding.graph.entry),
            _whole(binding),
            _pieces(binding),
            adapter=built.spec.adapted(),
            batches=batches,
            entry=binding.graph.entry,
            row_claims=row_claims(binding),
            compiled=compiled,
            **options,
        )
        for binding in built.compiled.bindings
    ]


def _arguments(spec: TraceSpec, binding: Binding) -> Any:
    entry = spec.entries[binding.graph.entry]
    return lambda batch: entry.arguments({"batch": batch})


def _pieces(binding: Binding) -> Any:
    split = binding.schedule.split
    if split is None:
        return lambda batch: ()
    return proportional_pieces(split.weights, split.align)


def _whole(binding: Binding) -> set[str]:
    once = {"before", "after", *binding.joined}
    return {
        name
        for part in binding.everything
        if part.name in once
        for instance in part.instances
        for name in instance.operations
    }
