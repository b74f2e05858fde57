"""Stresses the steps of a generated module in every way that a device has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch

from dynaflow_dsl.runtime.distances import INFINITE, distance, usual_magnitude
from dynaflow_dsl.runtime.errors import RuntimeFault
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.shared_code import shared_code
from dynaflow_dsl.runtime.streams import MakeStreams, one_stream
from dynaflow_dsl.verification.interleaving import Interleaved
from dynaflow_dsl.verification.results import Result, run_on_copies
from dynaflow_dsl.verification.spread import Spread, find_spread, unrepeatable
from dynaflow_dsl.verification.state import ModelState, same_bits
from dynaflow_dsl.verification.stress import stress
from dynaflow_dsl.verification.stress_report import StressReport, StressRun
from dynaflow_dsl.verification.verify import (
    CAPTURING,
    find_executor,
    input_names,
    modules_of,
)


@shared_code()
def stress_module(
    module: ModuleType,
    model: torch.nn.Module,
    arguments: Sequence[Any],
    *,
    batch: int,
    trials: int,
    dimension: str = "batch",
    adapter: Callable[..., Any] | None = None,
    entry: str | None = None,
    schedule: str | None = None,
    phases: Mapping[str, int] | None = None,
    compiled: bool = True,
    seed: int = 0,
    **options: Any,
) -> StressReport:
    """Run a step `trials` times in each way, with random delays before its steps.

    On a CUDA device the module runs eager and as one captured graph, `compiled` or as
    it stands; elsewhere its text runs with its streams interleaved in random order.
    Every result has to equal that of the same module on one stream, bit for bit, or
    within that run's own spread where it has one. `phases` are the rows of each, for
    steps that are cut by phase. `dimension` is what `batch` is the size of. `options`
    go to the module's `load`.
    """

    def load(compile_parts: bool, streams: MakeStreams) -> Executor:
        loaded = module.load(
            model, compile=compile_parts, capture=False, streams=streams, **options
        )
        return find_executor(loaded, entry, schedule, phases)

    called = adapter if adapter is not None else model
    state = ModelState(*modules_of(called, model))
    text = load(False, one_stream)
    on_device = text.device.type in CAPTURING
    single = load(compiled, one_stream) if on_device else text
    expected = run_on_copies(single, arguments, state)
    judge = _Judge(
        text,
        expected,
        partial(run_on_copies, single, arguments, state),
        arguments,
        state,
    )
    runs: list[StressRun] = []
    skipped: list[str] = []
    for way in _ways(on_device):
        try:
            made = way(partial(load, compiled and on_device), arguments, state)
        except RuntimeFault:
            raise
        except Exception as error:  # whatever an edited module, or a capture, does
            said = f"{type(error).__name__}: {error}".partition("\n")[0]
            skipped.append(f"{way.name}: could not run: {said}")
            continue
        runs.append(stress(made, trials, judge, seed))
    return StressReport(
        module=f"{module.__name__}.py",
        entry=text.entry,
        schedule="" if text.schedule == module.__name__ else text.schedule,
        batch=batch,
        runs=tuple(runs),
        skipped=tuple(skipped),
        spread="" if judge.spread is None else str(judge.spread),
        dimension=dimension,
    )


def _ways(on_device: bool) -> Sequence[Any]:
    if not on_device:
        return (Interleaved,)
    # Here, since it stands on Triton.
    from dynaflow_dsl.verification.device_runs import Eager, Replayed

    return (Eager, Replayed)


class _Judge:
    """Compares results with that of one stream; looks for its spread when one fails."""

    def __init__(
        self,
        text: Executor,
        expected: Result,
        again: Callable[[], Result],
        arguments: Sequence[Any],
        state: ModelState,
    ) -> None:
        self.spread: Spread | None = None
        self._text = text
        self._expected = expected
        self._again = again
        self._arguments = arguments
        self._state = state
        self._looked = False
        inputs = input_names(text, arguments)
        outputs = len(expected.tensors) - len(inputs)
        self._names = [
            f"output[{k}]" if outputs > 1 else "output" for k in range(outputs)
        ]
        self._names += [*inputs, *expected.buffers]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> str | None:
        """What is wrong with a result, None where nothing is."""
        wanted = [*self._expected.tensors, *self._expected.buffers.values()]
        if len(tensors) != len(wanted):
            return f"{len(tensors)} tensors instead of {len(wanted)}"
        for name, one, other in zip(self._names, tensors, wanted, strict=True):
            if same_bits(one, other):
                continue
            found = distance(one, other, usual_magnitude(wanted))
            spread = self._spread()
            if spread is None or found.relative > spread.allowed:
                return f"{name} differs" + (f" by {found}" if found != INFINITE else "")
        return None

    def _spread(self) -> Spread | None:
        if not self._looked:
            self._looked = True
            self.spread = find_spread(
                self._again,
                self._expected,
                lambda: unrepeatable(self._text, self._arguments, self._state),
            )
        return self.spread
