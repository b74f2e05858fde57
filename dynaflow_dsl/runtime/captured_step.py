"""A step that was captured, and how steps of its size and smaller ones run as it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dynaflow_dsl.runtime.captured_sizes import CapturedSizes, Wanted
from dynaflow_dsl.runtime.input_memory import InputMemory
from dynaflow_dsl.runtime.replayed import Output, Replay
from dynaflow_dsl.runtime.report import SizeReport


@dataclass(frozen=True, slots=True)
class CapturedStep:
    """A graph, what it keeps alive, and what is told of it.

    `form` is what the step returned, with a placeholder for each tensor: the tensors
    themselves would keep memory of the pool that other graphs may use. `kept` are the
    arguments that the graph uses where they lie.
    """

    items: tuple[Callable[[], None], ...]
    form: Any
    kept: list[torch.Tensor]
    outputs: tuple[Output, ...]
    report: SizeReport

    @property
    def addresses(self) -> list[int]:
        """Where a step's arguments must lie that are used in place."""
        return [one.data_ptr() for one in self.kept]


def replay_as(
    made: CapturedStep,
    wanted: Wanted,
    captured: Wanted,
    known: CapturedSizes,
    memory: InputMemory,
) -> Replay:
    """How the step that is `wanted` runs as the `captured` one, in its first rows."""
    sizes, captured_sizes = known.named(wanted.sizes), known.named(captured.sizes)
    outputs = list(made.outputs)
    for name, size in sizes.items():
        most = captured_sizes[name]
        if size == most:
            continue
        for place, along in enumerate(memory.capture.padding[name]):
            if along is not None:
                one = outputs[place]
                # An output may have several rows for each row of the step.
                rows = one.tensor.shape[along] * size // most
                outputs[place] = Output(one.tensor.narrow(along, 0, rows), one.copied)
    return Replay(
        sizes=sizes,
        unsplit=wanted.unsplit,
        items=made.items,
        fills=tuple(
            (memory.rows(k, sizes, captured_sizes), memory.places[k])
            for k in memory.copied
        ),
        addresses=made.addresses,
        outputs=tuple(outputs),
        one=isinstance(made.form, torch.Tensor),
        result=made.form,
    )
