"""Captures one step: whether that can be, what is recorded, and what it returns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.captured_sizes import CapturedSizes, Sizes
from dynaflow_dsl.runtime.captured_step import CapturedStep
from dynaflow_dsl.runtime.graphs import GraphBackend
from dynaflow_dsl.runtime.input_memory import InputMemory, arranged
from dynaflow_dsl.runtime.recording import (
    Observation,
    Parts,
    Recorded,
    map_tensors,
    observe,
    record,
    tensors_of,
)
from dynaflow_dsl.runtime.replayed import Output
from dynaflow_dsl.runtime.report import SizeReport
from dynaflow_dsl.runtime.streams import Streams

Step: TypeAlias = Callable[..., Any]

_log = logging.getLogger("dynaflow_dsl.runtime")

_PLACE = torch.empty(0, device="meta")


@dataclass(frozen=True, slots=True)
class Capturing:
    """What captures steps of one executor, in `memory` for their inputs.

    `explain` adds to an exception where in the schedule it was raised. With `lend` what
    a step returns is the graph's memory, else the caller's own.
    """

    memory: InputMemory
    sizes: CapturedSizes
    parts: Parts
    streams: Streams
    backend: GraphBackend
    explain: Callable[[BaseException], None]
    lend: bool

    def observe(self, run: Callable[[], Any]) -> tuple[Any, Observation]:
        """Run a step as it is, and see what recording it has to know."""
        return observe(self.parts, self.backend, run)

    def capture(
        self,
        sizes: Sizes,
        run: Step,
        flat: Sequence[torch.Tensor],
        observed: Observation,
    ) -> CapturedStep | str:
        """The step of these sizes and arguments as a graph, or why it cannot be one."""
        where = self.sizes.described(sizes)
        if (reason := self._hindrance(where, observed)) is not None:
            return reason
        # Graphs of other sizes read the same memory, perhaps right now.
        self.backend.take_turn()
        given = self.memory.filled(flat, self.sizes.named(sizes))
        before = self.backend.pool_bytes()
        try:
            recorded = record(
                self.parts,
                self.backend,
                self.streams,
                lambda: run(*arranged(self.memory.inputs, given)),
                observed,
            )
        except Exception as error:
            self.explain(error)
            notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
            first = str(error).strip().partition("\n")[0]
            return f"{type(error).__name__}: {first}{notes}"
        kept = [flat[k] for k in self.memory.in_place]
        outputs = self._outputs(recorded, kept)
        report = SizeReport(
            sizes=where,
            step=getattr(run, "__name__", "step"),
            estimated=observed.peak,
            taken=self.backend.pool_bytes() - before,
            outputs=sum(one.tensor.nbytes for one in outputs if one.copied),
            nodes=recorded.nodes,
            graphs=recorded.graphs,
            between=observed.parts,
        )
        form = map_tensors(lambda _: _PLACE, recorded.result)
        return CapturedStep(recorded.items, form, kept, outputs, report)

    def _hindrance(self, where: str, observed: Observation) -> str | None:
        """Why a step that has run is not even recorded."""
        if observed.blocking and not self.memory.capture.pieces:
            names = ", ".join(f"`{name}`" for name in observed.parts)
            return (
                f"the host waits for the device in the part {names}, which no graph "
                "can hold; `pieces = true` captures what lies between such parts"
            )
        free = self.backend.free_bytes()
        _log.info(
            "capturing %s of %d: about %s of %s that are free",
            where,
            len(self.sizes.combinations),
            _megabytes(observed.peak),
            _megabytes(free),
        )
        if observed.peak > free:
            return (
                f"it would take about {_megabytes(observed.peak)}, and "
                f"{_megabytes(free)} are free"
            )
        return None

    def _outputs(
        self, recorded: Recorded, kept: Sequence[torch.Tensor]
    ) -> tuple[Output, ...]:
        """What the step returned: in its own memory, or in that of an argument."""
        storages = {one.untyped_storage().data_ptr() for one in kept}
        return tuple(
            Output(tensor, copied=False)
            if tensor.untyped_storage().data_ptr() in storages
            else Output(self.backend.without_owner(tensor), copied=not self.lend)
            for tensor in tensors_of(recorded.result)
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
