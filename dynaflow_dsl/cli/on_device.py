"""What `dfsc verify` does on request: repeat steps with delays, and measure overlap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.cli.foreign import faults_shown
from dynaflow_dsl.cli.making import Made, Wanted
from dynaflow_dsl.cli.report import Reporter
from dynaflow_dsl.cli.sizes import (
    allowed_sizes,
    phases_of,
    sizes_to_measure,
    split_dimension,
)
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.resolve.model import Schedule
from dynaflow_dsl.resolve.steps import step_label

# Repetitions of a step whose overlap is measured; more make the medians steadier.
OVERLAP_RUNS = 5


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for, the same for every file.

    `folder` is where modules lie. No `batches` stand for the usual ones, no `device`
    for that of the target. `stress` is the number of runs with delays, 0 for none;
    `overlap` the least median share of a window, None where it is not measured.
    """

    wanted: Wanted
    folder: Path
    batches: tuple[int, ...]
    device: str | None
    compiled: bool
    stress: int = 0
    overlap: float | None = None
    one_stream: bool = False
    replay: bool = True

    def device_for(self, spec: Any) -> str:
        """The device to run a trace target on."""
        return self.device if self.device is not None else str(spec.device)


# Tells of a report, and gives whether it is fine.
Tell = Callable[[Reporter, Any], bool]


def stress(
    reporter: Reporter,
    module: ModuleType,
    made: Made,
    binding: Binding,
    request: Request,
    tell: Tell,
) -> bool:
    """Repeat steps with random delays, each size of the command line."""
    # Torch takes a second to import, and help on this command needs none.
    from dynaflow_dsl.verification.stressed import stress_module

    spec, graph, schedule = made.loaded.spec, binding.graph, binding.schedule
    dimension = split_dimension(graph, schedule)
    device = request.device_for(spec)
    check_cuda(device)
    fine = True
    for sizes in _sizes(binding, request.batches):
        report: Any = None
        with faults_shown(reporter):
            report = stress_module(
                module,
                spec.model,
                made.loaded.arguments(graph.entry, sizes),
                batch=sizes.get(dimension, 1),
                dimension=dimension,
                trials=request.stress,
                adapter=spec.adapted(),
                entry=graph.entry,
                schedule=schedule.name,
                phases=phases_of(graph, sizes),
                compiled=request.compiled,
                device=device,
                facts=made.given.facts,
                context=spec.context,
            )
        fine &= report is not None and tell(reporter, report)
    return fine


def overlap(
    reporter: Reporter,
    module: ModuleType,
    made: Made,
    binding: Binding,
    request: Request,
    tell: Tell,
) -> bool:
    """Measure how far the windows of a schedule overlap, for each size."""
    import torch

    from dynaflow_dsl.measurement.overlap import OverlapReport, measure_overlap
    from dynaflow_dsl.measurement.profile import profile_step
    from dynaflow_dsl.runtime.streams import make_streams, one_stream

    spec, graph, schedule = made.loaded.spec, binding.graph, binding.schedule
    dimension = split_dimension(graph, schedule)
    device = request.device_for(spec)
    if torch.device(device).type == "cpu":
        raise DiagnosticError([no_overlap_on_cpu()])

    check_cuda(device)
    fine = True
    assert request.overlap is not None
    for sizes in _sizes(binding, request.batches):
        report: Any = None
        with faults_shown(reporter):
            profile = profile_step(
                loads(module, binding, made, device, sizes, compiled=request.compiled),
                made.loaded.arguments(graph.entry, sizes),
                runs=OVERLAP_RUNS,
                replay=request.replay,
                make=one_stream if request.one_stream else make_streams,
            )
            alone = ", all on one stream" if request.one_stream else ""
            report = OverlapReport(
                module=f"{module.__name__}.py",
                entry=graph.entry,
                schedule="" if schedule.name == module.__name__ else schedule.name,
                batch=sizes.get(dimension, 1),
                dimension=dimension,
                device=profile.device,
                how=how_it_ran(profile) + alone,
                one_stream=request.one_stream,
                minimum=request.overlap,
                windows=measure_overlap(profile.timeline, _windows(schedule)),
            )
        fine &= report is not None and tell(reporter, report)
    return fine


def loads(
    module: ModuleType,
    binding: Binding,
    made: Made,
    device: str,
    sizes: Mapping[str, int],
    *,
    compiled: bool,
    capture: bool = False,
) -> Callable[[Any], Any]:
    """What loads the executor of a binding with the streams it is given.

    Its steps are cut as `sizes` say, and captured where `capture` and the device say
    so.
    """
    from dynaflow_dsl.verification.verify import find_executor

    def load(streams: Any) -> Any:
        loaded = module.load(
            made.loaded.spec.model,
            device,
            compile=compiled,
            capture=capture,
            facts=made.given.facts,
            context=made.loaded.spec.context,
            streams=streams,
        )
        return find_executor(
            loaded,
            binding.graph.entry,
            binding.schedule.name,
            phases_of(binding.graph, sizes),
        )

    return load


def say_expected_memory(reporter: Reporter, executor: Any) -> None:
    """Say what captured steps take at most.

    To be said before anything is captured, and so before it can run out of memory.
    """
    if executor.replays is not None:
        reporter.say(str(executor.report()))


def how_it_ran(profile: Any) -> str:
    """Whether the steps of a profile were replayed, in words."""
    if profile.refused:
        return f"issued anew, since it cannot be captured ({profile.refused})"
    return "replayed" if profile.replayed else "issued anew"


def check_cuda(device: str) -> None:
    """Refuse a CUDA device that is not there, saying what works without one.

    Raises DiagnosticError (DFS801).
    """
    import torch

    if device.partition(":")[0] == "cuda" and not torch.cuda.is_available():
        raise DiagnosticError(
            [
                Diagnostic(
                    "DFS801",
                    "`cuda` was asked for, and PyTorch finds no CUDA device here",
                    helps=(
                        "`verify --stress` and `profile` also run on the CPU: trace "
                        "the model for `cpu`; `verify --overlap` needs a CUDA device",
                    ),
                )
            ]
        )


def no_overlap_on_cpu() -> Diagnostic:
    """Why there is nothing to measure on the CPU."""
    return Diagnostic(
        "DFS808",
        "`--overlap` measures kernels of a CUDA device, and on the CPU a step runs on "
        "one thread: nothing overlaps there",
        helps=(
            "run it with `--device cuda` on a machine that has one",
            "`verify --stress` and `profile` work on the CPU too",
        ),
    )


def _sizes(binding: Binding, batches: Sequence[int]) -> list[Mapping[str, int]]:
    """The sizes of the steps to run: those of the command line, else one of them."""
    graph, schedule = binding.graph, binding.schedule
    usual = sizes_to_measure(graph, schedule, None)
    if not batches:
        return [usual]
    name = split_dimension(graph, schedule)
    wanted = allowed_sizes(batches, graph, schedule)
    if graph.phases:
        return [sizes_to_measure(graph, schedule, size) for size in wanted]
    return [{**usual, name: size} for size in wanted]


def _windows(schedule: Schedule) -> tuple[Any, ...]:
    """The windows that claim an overlap, as plain data."""
    from dynaflow_dsl.measurement.overlap import ClaimedStep, ClaimedWindow

    return tuple(
        ClaimedWindow(
            window.text,
            window.span.line,
            tuple(
                tuple(
                    ClaimedStep(
                        step_label(step, schedule.piece_names).removeprefix("prev."),
                        step.previous,
                    )
                    for step in run.steps
                )
                for run in window.runs
            ),
        )
        for section in schedule.sections
        for window in section.windows
        if len(window.runs) > 1
    )
