"""`dfsc bench`: one step as scheduled beside the usual ways to run it."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.cli.files import schedule_files
from dynaflow_dsl.cli.models import LoadedModel, kernel_reader, load_model
from dynaflow_dsl.cli.modules import ModuleFiles, ModuleText
from dynaflow_dsl.cli.options import (
    choose_model,
    fact_option,
    model_options,
    parameter_option,
)
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.schedules import read_schedule
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.resolve.model import Scalar

REFERENCES = ("torch.compile", "torch.compile, captured")
ROUNDS = 5
USUAL_SIZE = 8


@dataclass(frozen=True, slots=True)
class Request:
    """What is measured: `size` is that of every dynamic dimension, None for the usual
    one; no `names` stand for all contenders of the device.
    """

    size: int | None
    device: str | None
    names: tuple[str, ...]
    rounds: int
    seconds: float


@click.command("bench")
@click.argument("file")
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
    "--only",
    "names",
    multiple=True,
    help="Measure this contender; repeat for more. All by default.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=ROUNDS),
    default=ROUNDS,
    show_default=True,
    help="Rounds, in each of which every contender is measured.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.0, min_open=True),
    default=0.3,
    show_default=True,
    help="Length of one sample.",
)
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    file: str,
    model: str | None,
    model_arguments: Mapping[str, Scalar],
    parameters: Mapping[str, str],
    facts: Mapping[str, Scalar],
    size: int | None,
    device: str | None,
    names: tuple[str, ...],
    rounds: int,
    seconds: float,
) -> int:
    """Measure one step of a schedule beside eager PyTorch and torch.compile.

    Everything runs in this process, on the same inputs, in alternating rounds, each
    call on an idle device. Times are medians over rounds, ratios are paired, and their
    intervals hold 95%. `host` is the time until a call returns.
    """
    (path,) = schedule_files([file])
    schedules = read_schedule(reporter, path, parameters)
    if schedules is None:
        return reporter.code
    loaded = load_model(reporter, choose_model(schedules, path, model, model_arguments))
    if loaded is None:
        return reporter.code
    compiled = pipeline.compile_schedules(
        schedules, loaded.traced, facts, kernel_reader(loaded)
    )
    reporter.show(compiled.diagnostics)
    if compiled.value is None or not compiled.ok:
        return reporter.code
    made = compiled.value
    request = Request(size, device, names, rounds, seconds)
    with tempfile.TemporaryDirectory() as temporary:
        files = ModuleFiles.of(Path(temporary), made.name)
        files.write(ModuleText(made.text, made.map))
        module = _import(files.module)
        for binding in made.bindings:
            _bench(reporter, module, loaded, binding, request)
    return reporter.code


def _bench(
    reporter: Reporter,
    module: ModuleType,
    loaded: LoadedModel,
    binding: Binding,
    request: Request,
) -> None:
    # Torch takes a second to import, and help on this command needs none.
    import torch

    from dynaflow_dsl.measurement.contenders import Case, names_for
    from dynaflow_dsl.measurement.machine import describe
    from dynaflow_dsl.measurement.measure import Failure, lines, measure
    from dynaflow_dsl.runtime import RuntimeFault

    spec, graph, schedule = loaded.spec, binding.graph, binding.schedule
    device = torch.device(request.device if request.device is not None else spec.device)
    known = names_for(device)
    chosen = request.names or known
    for name in chosen:
        if name not in known:
            raise click.UsageError(f"--only: choose from {', '.join(known)}")
    sizes = _sizes(binding, request.size)
    arguments = spec.entries[graph.entry].arguments(sizes)
    load = partial(_load, module, spec, device, graph.entry, schedule.name)
    try:
        scheduled = load()
    except RuntimeFault as fault:
        reporter.show([Diagnostic(fault.code, fault.message)])
        return
    written = set(scheduled.written)
    if scheduled.capture is not None:
        written |= set(scheduled.capture.in_place)
    case = Case(
        adapted=spec.adapted,
        load=load,
        arguments=arguments,
        in_place=[k for k, name in enumerate(scheduled.inputs) if name in written],
        device=device,
    )
    rows = measure(
        case, chosen, REFERENCES, request.rounds, request.seconds, time.perf_counter
    )
    scheduled(*arguments)
    scheduled(*arguments)
    report = scheduled.report()
    described = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    title = f"{schedule.name}, entry {graph.entry}, {described} on {device}"
    text = [title, *lines(rows, REFERENCES), "", str(report)]
    reporter.result(
        "\n".join(text),
        {
            "schedule": schedule.name,
            "entry": graph.entry,
            "target": loaded.traced.target,
            "arguments": dict(loaded.traced.arguments),
            "sizes": sizes,
            "rounds": request.rounds,
            "seconds": request.seconds,
            "machine": describe(str(device)),
            "contenders": {name: asdict(row) for name, row in rows.items()},
            "report": asdict(report),
        },
    )
    if any(isinstance(row, Failure) for row in rows.values()):
        reporter.fail()


def _load(module: ModuleType, spec: Any, device: Any, entry: str, schedule: str) -> Any:
    """The executor of an entry and a schedule, loaded anew."""
    from dynaflow_dsl.verification.verify import find_executor

    return find_executor(module.load(spec.model, device), entry, schedule)


def _sizes(binding: Binding, size: int | None) -> dict[str, int]:
    """A size for every dynamic dimension of an entry, within its bounds."""
    captured = {line.dimension: line.sizes[-1] for line in binding.schedule.captures}
    found = {}
    for name, low, high in binding.graph.dimensions:
        wanted = size if size is not None else captured.get(name, USUAL_SIZE)
        found[name] = max(low, min(wanted, high if high is not None else wanted))
    return found


def _import(path: Path) -> ModuleType:
    """The module that was just written."""
    found = spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        found.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = kept
    return module
