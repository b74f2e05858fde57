"""`dfsc bench`: one step as scheduled beside the usual ways to run it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.bind.uses import waits_on_host
from dynaflow_dsl.cli.foreign import faults_shown, import_module_file
from dynaflow_dsl.cli.given_files import given_by_file
from dynaflow_dsl.cli.launched import (
    Meet,
    joined_ranks,
    met,
    rank_count,
    rank_timeout_option,
    tell_ranks,
)
from dynaflow_dsl.cli.making import Made, Wanted, make_to_run
from dynaflow_dsl.cli.on_device import say_expected_memory
from dynaflow_dsl.cli.options import (
    Given,
    fact_option,
    model_options,
    parameter_option,
)
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.running import chosen_files, current_project, going_on
from dynaflow_dsl.cli.sizes import USUAL_SIZE, phases_of, sizes_to_measure
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.resolve.model import Scalar

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Request:
    """What is measured: `size` is that of every dynamic dimension, None for the usual
    one; no `names` stand for all contenders of the step, and no `entries` for all.
    """

    entries: tuple[str, ...]
    size: int | None
    device: str | None
    names: tuple[str, ...]
    rounds: int
    seconds: float


@click.command("bench")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@model_options
@parameter_option
@fact_option
@click.option(
    "--entry",
    "entries",
    multiple=True,
    help="Measure this entry of the model; repeat for more. All by default.",
)
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
    help="Measure this contender; repeat for more. All that can run by default.",
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
@rank_timeout_option
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    paths: tuple[str, ...],
    model: str | None,
    model_arguments: Mapping[str, Scalar],
    parameters: Mapping[str, str],
    facts: Mapping[str, Scalar],
    entries: tuple[str, ...],
    size: int | None,
    device: str | None,
    names: tuple[str, ...],
    rounds: int,
    seconds: float,
    rank_seconds: int,
) -> int:
    """Measure a step of each schedule beside eager PyTorch and torch.compile.

    Everything runs in this process, on the same inputs, in alternating rounds, each
    call on an idle device. Times are medians over rounds, ratios are paired, and their
    intervals hold 95%. `host` is the time until a call returns, `apart` how far its
    results are from those of the first contender. A schedule that asks for a graph of
    this size, and gets none, is not measured. Started by torchrun, all ranks run
    together, and the slowest of them counts.
    """
    project = current_project(reporter)
    files = chosen_files(project, paths)
    given = given_by_file(Given(parameters, facts), project, files)
    wanted = Wanted(project, model, model_arguments, given)
    request = Request(entries, size, device, names, rounds, seconds)
    _check_names(names)
    with joined_ranks(reporter, rank_seconds) as meet:
        for path in files:
            with met(reporter, meet), going_on(reporter, path):
                _bench_file(reporter, path, wanted, request, meet)
    return reporter.code


def _bench_file(
    reporter: Reporter, path: str, wanted: Wanted, request: Request, meet: Meet
) -> None:
    made = make_to_run(reporter, path, wanted)
    if made is None:
        return
    bindings = made.module.bindings
    there = dict.fromkeys(binding.graph.entry for binding in bindings)
    if unknown := [name for name in request.entries if name not in there]:
        raise click.UsageError(
            f"--entry: {path} has no {unknown[0]}; choose from {', '.join(there)}"
        )
    measured = [
        binding
        for binding in bindings
        if not request.entries or binding.graph.entry in request.entries
    ]
    for binding in measured:
        # A device that is none is refused where the module is loaded.
        with suppress(RuntimeError):
            _contenders(binding.graph, _device(made, request), request.names)
    with tempfile.TemporaryDirectory() as temporary:
        module = import_module_file(made.write(Path(temporary)).module)
        for binding in measured:
            with met(reporter, meet), faults_shown(reporter):
                _bench(reporter, module, made, binding, request, meet)


def _bench(
    reporter: Reporter,
    module: ModuleType,
    made: Made,
    binding: Binding,
    request: Request,
    meet: Meet,
) -> None:
    # Torch takes a second to import, and help on this command needs none.
    import torch

    from dynaflow_dsl.measurement.contenders import REFERENCES, Case
    from dynaflow_dsl.measurement.machine import describe
    from dynaflow_dsl.measurement.measure import Failure, lines, measure

    loaded, facts = made.loaded, made.given.facts
    spec, graph, schedule = loaded.spec, binding.graph, binding.schedule
    named = _device(made, request)
    load = partial(_load, module, spec, named, facts, graph.entry, schedule.name)
    scheduled = load()
    say_expected_memory(reporter, scheduled)
    device = torch.device(named)
    chosen, left = _contenders(graph, named, request.names)
    if left:
        reporter.say(
            f"{graph.entry} waits for the device, so that no graph can hold it as it "
            f"is: left out are {'; '.join(left)}"
        )
    sizes = sizes_to_measure(binding.graph, binding.schedule, request.size)
    phases = phases_of(graph, sizes)
    arguments = loaded.arguments(graph.entry, sizes)
    written = set(scheduled.written)
    if scheduled.capture is not None:
        written |= set(scheduled.capture.in_place)
    case = Case(
        adapted=spec.adapted,
        load=load,
        arguments=arguments,
        in_place=[k for k, name in enumerate(scheduled.inputs) if name in written],
        device=device,
        phases=phases,
    )
    rows = measure(
        case,
        chosen,
        REFERENCES,
        request.rounds,
        request.seconds,
        time.perf_counter,
        tell_ranks,
        meet,
    )
    scheduled(*arguments, phases=phases)
    scheduled(*arguments, phases=phases)
    report = scheduled.report()
    described = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    title = f"{schedule.name}, entry {graph.entry}, {described} on {device}"
    ranks = rank_count()
    if ranks > 1:
        title += f", {ranks} ranks"
    text = [title, *lines(rows, REFERENCES), "", str(report)]
    if not reporter.silent:
        reporter.result(
            "\n".join(text),
            {
                "schedule": schedule.name,
                "entry": graph.entry,
                "target": loaded.traced.target,
                "arguments": dict(loaded.traced.arguments),
                "sizes": sizes,
                "ranks": ranks,
                "rounds": request.rounds,
                "seconds": request.seconds,
                "machine": describe(str(device)),
                "contenders": {name: asdict(row) for name, row in rows.items()},
                "report": asdict(report),
            },
        )
    if any(isinstance(row, Failure) for row in rows.values()):
        reporter.fail()


def _device(made: Made, request: Request) -> str:
    return request.device if request.device is not None else made.loaded.spec.device


def _check_names(names: Sequence[str]) -> None:
    """Refuse what is no contender anywhere, before anything is compiled."""
    if not names:
        return
    from dynaflow_dsl.measurement.contenders import EVERYWHERE, EXCHANGES, ON_CUDA

    known = dict.fromkeys((*EVERYWHERE, *ON_CUDA, *EXCHANGES))
    for name in names:
        if name not in known:
            raise click.UsageError(
                f"--only: there is no contender '{name}'; choose from "
                f"{', '.join(known)}"
            )


def _contenders(
    graph: Graph, device: str, names: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Who is measured with a step of a graph, and who is left out since it cannot run.

    Those of `names`, or all that can run. Raises UsageError for a name of none.
    """
    import torch

    from dynaflow_dsl.measurement.contenders import Kind, known_for, names_for
    from dynaflow_dsl.measurement.exchanges import exchanges_tokens

    waits = any(map(waits_on_host, graph.operations))
    kind = Kind(torch.device(device), waits, exchanges_tokens(graph))
    known, can_run = known_for(kind), names_for(kind)
    for name in names:
        if name not in known:
            raise click.UsageError(
                f"--only: '{name}' does not run entry {graph.entry} on {device}; "
                f"choose from {', '.join(known)}"
            )
    if names:
        return names, ()
    return can_run, [name for name in known if name not in can_run]


def _load(
    module: ModuleType,
    spec: Any,
    device: Any,
    facts: Mapping[str, Scalar],
    entry: str,
    schedule: str,
    **options: Any,
) -> Any:
    """The executor of an entry and a schedule, loaded anew."""
    from dynaflow_dsl.verification.verify import find_executor

    loaded = module.load(
        spec.model, device, facts=facts, context=spec.context, **options
    )
    return find_executor(loaded, entry, schedule)
