"""`dfsc profile`: when the steps of a schedule ran, as a trace and in some lines."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from dynaflow_dsl.cli.files import schedule_file
from dynaflow_dsl.cli.foreign import faults_shown, import_module_file
from dynaflow_dsl.cli.given_files import given_by_file
from dynaflow_dsl.cli.launched import (
    joined_ranks,
    rank_timeout_option,
    tell_ranks,
    told_to_first,
)
from dynaflow_dsl.cli.making import Made, Wanted, make_to_run
from dynaflow_dsl.cli.on_device import (
    check_cuda,
    loads,
    say_expected_memory,
)
from dynaflow_dsl.cli.options import (
    Given,
    fact_option,
    model_options,
    parameter_option,
)
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.running import current_project
from dynaflow_dsl.cli.sizes import USUAL_SIZE, sizes_to_measure
from dynaflow_dsl.resolve.model import Scalar


@dataclass(frozen=True, slots=True)
class Request:
    """What is profiled, and how; no `size` stands for the usual one."""

    size: int | None
    device: str | None
    runs: int
    compiled: bool
    replay: bool


@click.command("profile")
@click.argument("path", metavar="FILE")
@click.option(
    "-o",
    "output",
    metavar="TRACE",
    required=True,
    help="The trace to write, such as trace.json.",
)
@model_options
@parameter_option
@fact_option
@click.option(
    "--size",
    type=click.IntRange(min=1),
    help="Size of the dynamic dimensions; the largest captured one by default, or "
    f"{USUAL_SIZE}.",
)
@click.option("--device", help="Device to run on; that of the target by default.")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How often the step is run.",
)
@click.option(
    "--text-only",
    is_flag=True,
    help="Run the module's text as it stands, without compiling its parts.",
)
@click.option(
    "--eager",
    is_flag=True,
    help="On a CUDA device, issue steps anew instead of replaying a captured graph.",
)
@rank_timeout_option
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    path: str,
    output: str,
    model: str | None,
    model_arguments: Mapping[str, Scalar],
    parameters: Mapping[str, str],
    facts: Mapping[str, Scalar],
    size: int | None,
    device: str | None,
    runs: int,
    text_only: bool,
    eager: bool,
    rank_seconds: int,
) -> int:
    """Write a trace of a step, for https://ui.perfetto.dev or chrome://tracing.

    Each stream of the schedule is a track, with a range for each step: its part,
    microbatch and layer. Below it lies what ran for it: kernels on a CUDA device,
    replayed ones too, and operators on the CPU. What is printed says how busy streams
    are, and which steps main waits for. Started by torchrun, all ranks run together,
    and one trace holds them side by side.
    """
    project = current_project(reporter)
    file = schedule_file(path)
    given = given_by_file(Given(parameters, facts), project, [file])
    wanted = Wanted(project, model, model_arguments, given)
    reporter.about = file
    request = Request(size, device, runs, not text_only, not eager)
    with joined_ranks(reporter, rank_seconds, all_or_none=True), faults_shown(reporter):
        made = make_to_run(reporter, file, wanted)
        if made is not None:
            profiles = _profiles(reporter, made, request)
            _tell(reporter, file, Path(output), profiles)
    return reporter.code


def _profiles(reporter: Reporter, made: Made, request: Request) -> dict[str, Any]:
    """The profiles of this rank, by what was run."""
    # Torch takes a second to import, and help on this command needs none.
    from dynaflow_dsl.measurement.profile import profile_step
    from dynaflow_dsl.runtime.streams import make_streams

    profiles: dict[str, Any] = {}
    spec = made.loaded.spec
    on = request.device if request.device is not None else str(spec.device)
    check_cuda(on)
    with tempfile.TemporaryDirectory() as temporary:
        module = import_module_file(made.write(Path(temporary)).module)
        for binding in made.module.bindings:
            graph, schedule = binding.graph, binding.schedule
            sizes = sizes_to_measure(graph, schedule, request.size)
            described = ", ".join(f"{name} = {each}" for name, each in sizes.items())
            title = f"{schedule.name}, entry {graph.entry}, {described}"
            load = partial(
                loads, module, binding, made, on, sizes, compiled=request.compiled
            )
            if schedule.captures and request.replay:
                expected = load(capture=True)(make_streams)
                say_expected_memory(reporter, expected)
            profiles[title] = profile_step(
                load(),
                made.loaded.arguments(graph.entry, sizes),
                runs=request.runs,
                replay=request.replay,
                tell=tell_ranks,
            )
    return profiles


def _tell(
    reporter: Reporter, file: str, path: Path, profiles: Mapping[str, Any]
) -> None:
    """Bring the profiles of all ranks together; the first one writes and tells."""
    from dynaflow_dsl.cli.profiled import write_profiles
    from dynaflow_dsl.measurement.rank_clocks import compare_clocks, this_machine

    clocks = compare_clocks(tell_ranks, this_machine())
    by_rank = told_to_first(profiles)
    if by_rank:
        write_profiles(reporter, file, path, by_rank, clocks)
