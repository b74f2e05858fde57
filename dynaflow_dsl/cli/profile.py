"""`dfsc profile`: when the steps of a schedule ran, as a trace."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from dynaflow_dsl.cli.files import relative, schedule_file, write_text
from dynaflow_dsl.cli.foreign import faults_shown, import_module_file
from dynaflow_dsl.cli.given_files import given_by_file
from dynaflow_dsl.cli.making import Wanted, make_to_run
from dynaflow_dsl.cli.on_device import (
    check_cuda,
    how_it_ran,
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
) -> int:
    """Write a trace of a step, for https://ui.perfetto.dev or chrome://tracing.

    Each stream of the schedule is a track, with a range for each step: its part,
    microbatch and layer. Below it lies what ran for it: kernels on a CUDA device,
    replayed ones too, and operators on the CPU.
    """
    project = current_project(reporter)
    file = schedule_file(path)
    given = given_by_file(Given(parameters, facts), project, [file])
    made = make_to_run(reporter, file, Wanted(project, model, model_arguments, given))
    if made is None:
        return reporter.code
    # Torch takes a second to import, and help on this command needs none.
    from dynaflow_dsl.measurement.profile import profile_step
    from dynaflow_dsl.runtime.streams import make_streams

    profiles: dict[str, Any] = {}
    spec = made.loaded.spec
    on = device if device is not None else str(spec.device)
    check_cuda(on)
    with tempfile.TemporaryDirectory() as temporary, faults_shown(reporter):
        module = import_module_file(made.write(Path(temporary)).module)
        for binding in made.module.bindings:
            graph, schedule = binding.graph, binding.schedule
            sizes = sizes_to_measure(graph, schedule, size)
            described = ", ".join(f"{name} = {each}" for name, each in sizes.items())
            title = f"{schedule.name}, entry {graph.entry}, {described}"
            load = partial(
                loads, module, binding, made, on, sizes, compiled=not text_only
            )
            if schedule.captures and not eager:
                expected = load(capture=True)(make_streams)
                say_expected_memory(reporter, expected)
            profiles[title] = profile_step(
                load(),
                made.loaded.arguments(graph.entry, sizes),
                runs=runs,
                replay=not eager,
            )
        _write(reporter, Path(output), profiles)
    return reporter.code


def _write(reporter: Reporter, path: Path, profiles: Mapping[str, Any]) -> None:
    from dynaflow_dsl.measurement.trace_file import assigned, trace_document

    write_text(path, json.dumps(trace_document(profiles)) + "\n")
    inside, whole = assigned(list(profiles.values()))
    lines = [f"{relative(path)}: {inside} of {whole} operations lie in a step"]
    lines += [
        f"  {title} on {one.device}, {how_it_ran(one)}: {len(one.timeline.steps)} steps"
        for title, one in profiles.items()
    ]
    reporter.result(
        "\n".join(lines),
        {
            "trace": relative(path),
            "operations": whole,
            "operations_in_steps": inside,
            "profiles": [
                {
                    "title": title,
                    "device": one.device,
                    "replayed": one.replayed,
                    "refused": one.refused,
                    "streams": list(one.streams),
                    "steps": len(one.timeline.steps),
                }
                for title, one in profiles.items()
            ],
        },
    )
