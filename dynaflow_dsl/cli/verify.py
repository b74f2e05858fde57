"""`dfsc verify`: run scheduled beside unscheduled and compare."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import module_from_spec, spec_from_file_location
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from dynaflow_dsl import pipeline
from dynaflow_dsl.bind.model import AFTER, BEFORE, Binding
from dynaflow_dsl.cli.files import relative, schedule_files
from dynaflow_dsl.cli.models import LoadedModel, load_model
from dynaflow_dsl.cli.modules import (
    ModuleFiles,
    ModuleText,
    compile_command,
    folder_option,
)
from dynaflow_dsl.cli.options import (
    Given,
    choose_model,
    fact_option,
    model_options,
    parameter_option,
)
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.schedules import read_schedule
from dynaflow_dsl.cli.staleness import compare
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.resolve.model import Scalar, Schedule, Step
from dynaflow_dsl.resolve.steps import step_label

BATCHES = (1, 2, 3, 8)
# A split has at most 64 pieces; more rows than this for one in each are not tried.
MOST_ROWS = 4096
EDITED = "DFS504"


@dataclass(frozen=True, slots=True)
class Request:
    """How modules are run: no `batches` stand for the usual ones, no `device` for that
    of the target.
    """

    batches: tuple[int, ...]
    device: str | None
    compiled: bool


@click.command("verify")
@click.argument("file")
@folder_option
@model_options
@parameter_option
@fact_option
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(min=1),
    multiple=True,
    help=f"Size of the split dimension; repeat for more. {BATCHES} by default, and the "
    "smallest sizes that fill every piece.",
)
@click.option("--device", help="Device to run on; that of the target by default.")
@click.option(
    "--text-only",
    is_flag=True,
    help="Run the module's text as it stands, without compiling its parts.",
)
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    file: str,
    folder: str,
    model: str | None,
    model_arguments: Mapping[str, Scalar],
    parameters: Mapping[str, str],
    facts: Mapping[str, Scalar],
    batches: tuple[int, ...],
    device: str | None,
    text_only: bool,
) -> int:
    """Run the module of a schedule file beside its model, and compare.

    Runs the module in DIR, or what compile would write if there is none. Results must
    equal the same pieces on one stream bit for bit, and the unsplit model but for
    rounding; the order of streams is recorded and checked for races and early frees.
    """
    (path,) = schedule_files([file])
    schedules = read_schedule(reporter, path, parameters)
    if schedules is None:
        return reporter.code
    chosen = choose_model(schedules, path, model, model_arguments)
    loaded = load_model(reporter, chosen)
    if loaded is None:
        return reporter.code
    compiled = pipeline.compile_schedules(schedules, loaded.traced, facts)
    reporter.show(compiled.diagnostics)
    if compiled.value is None or not compiled.ok:
        return reporter.code
    made = compiled.value
    request = Request(batches, device, compiled=not text_only)
    current = ModuleText(made.text, made.map)
    repair = compile_command(
        path, Path(folder), model, model_arguments, Given(parameters, facts)
    )
    with tempfile.TemporaryDirectory() as temporary:
        files = ModuleFiles.of(Path(folder), made.name)
        if files.module.is_file():
            found = compare(relative(files.module), files.read(), current, repair)
            reporter.show(found)
            # A stale module has other parts than the model; an edited one is worth a
            # run, which shows what the edit broke.
            if any(item.code != EDITED for item in found):
                return reporter.code
        else:
            name = relative(files.module)
            reporter.say(f"there is no {name}: verifying what compile would write")
            files = ModuleFiles.of(Path(temporary), made.name)
            files.write(current)
        module = _import(files.module)
        if isinstance(module, Diagnostic):
            reporter.show([module])
            return reporter.code
        for binding in made.bindings:
            _verify(reporter, module, loaded, binding, request)
        _try_out(reporter, module, loaded, made.bindings, request)
    return reporter.code


def _verify(
    reporter: Reporter,
    module: ModuleType,
    loaded: LoadedModel,
    binding: Binding,
    request: Request,
) -> None:
    # Torch takes a second to import, and help on this command needs none.
    from dynaflow_dsl.runtime import RuntimeFault
    from dynaflow_dsl.trace import export_entry
    from dynaflow_dsl.verification.verify import verify

    spec, graph, schedule = loaded.spec, binding.graph, binding.schedule
    device = request.device if request.device is not None else spec.device
    try:
        report = verify(
            module,
            spec.model,
            _make_arguments(spec, graph, schedule),
            export_entry(spec, graph.entry),
            _whole(binding),
            _pieces(schedule),
            adapter=spec.adapted(),
            batches=_allowed(request.batches, graph, schedule),
            entry=graph.entry,
            schedule=schedule.name,
            claims=claims_of(schedule),
            compiled=request.compiled,
            device=device,
        )
    except RuntimeFault as fault:
        reporter.show([Diagnostic(fault.code, fault.message)])
        return
    reporter.result(str(report), json_data(asdict(report)))
    if not report.ok:
        reporter.fail()


def _try_out(
    reporter: Reporter,
    module: ModuleType,
    loaded: LoadedModel,
    bindings: Sequence[Binding],
    request: Request,
) -> None:
    """Let a target that knows its model's loop run it with the scheduled steps."""
    from dynaflow_dsl.runtime import RuntimeFault
    from dynaflow_dsl.verification.trial import run_trial
    from dynaflow_dsl.verification.verify import find_executor

    spec, schedules = loaded.spec, {b.schedule.name for b in bindings}
    if spec.trial is None or len(schedules) > 1 or reporter.code:
        return
    if not callable(spec.trial):
        message = f"the trial of the target is a {type(spec.trial).__name__}"
        reporter.show([Diagnostic("DFS110", f"{message}, and must be a function")])
        return
    device = request.device if request.device is not None else spec.device
    try:
        loaded_module = module.load(spec.model, device, compile=request.compiled)
    except RuntimeFault as fault:
        reporter.show([Diagnostic(fault.code, fault.message)])
        return
    steps = {
        binding.graph.entry: find_executor(loaded_module, binding.graph.entry)
        for binding in bindings
    }
    first = bindings[0]
    rows = _allowed(request.batches, first.graph, first.schedule)
    with _user_code("the trial of the target"):
        report = run_trial(spec.trial, steps, rows)
    reporter.result(str(report), json_data(asdict(report)))
    if not report.ok:
        reporter.fail()


def _make_arguments(
    spec: Any, graph: Graph, schedule: Schedule
) -> Callable[[int], Sequence[Any]]:
    """Arguments for a size of the split dimension, the others as small as allowed."""

    def make(batch: int) -> Sequence[Any]:
        sizes = {name: low for name, low, _ in graph.dimensions}
        sizes[_dimension(graph, schedule)] = batch
        with _user_code(f"making arguments of the entry '{graph.entry}'"):
            arguments: Sequence[Any] = spec.entries[graph.entry].arguments(sizes)
        return arguments

    return make


def _dimension(graph: Graph, schedule: Schedule) -> str:
    if schedule.split is not None:
        return schedule.split.dimension
    return next(iter(name for name, _, _ in graph.dimensions), "")


def _allowed(
    batches: tuple[int, ...], graph: Graph, schedule: Schedule
) -> tuple[int, ...]:
    """The sizes that the dimension can have; of named ones, all must be allowed."""
    name = _dimension(graph, schedule)
    bounds = {known: (low, high) for known, low, high in graph.dimensions}
    low, high = bounds.get(name, (1, None))
    wanted = batches or _usual_sizes(schedule)
    allowed = tuple(size for size in wanted if low <= size <= (high or size))
    if batches and allowed != batches:
        upper = f"to {high}" if high is not None else "upwards"
        raise click.UsageError(f"--batch: {name} goes from {low} {upper}")
    return allowed


def _usual_sizes(schedule: Schedule) -> tuple[int, ...]:
    """The usual sizes, and the smallest ones with a row in every piece.

    Smaller steps run `sequential`; alone, they would say nothing of the schedule.
    """
    pieces_of = _pieces(schedule)
    fill = [
        size
        for size in range(1, MOST_ROWS)
        if all(piece.start < piece.stop for piece in pieces_of(size))
    ]
    return tuple(sorted({*BATCHES, *fill[:2]}))


def _whole(binding: Binding) -> frozenset[str]:
    """Operations that run once on the whole batch."""
    once = {BEFORE, AFTER, *binding.joined}
    return frozenset(
        name
        for part in binding.everything
        if part.name in once
        for instance in part.instances
        for name in instance.operations
    )


def _pieces(schedule: Schedule) -> Callable[[int], Sequence[slice]]:
    from dynaflow_dsl.verification.verify import proportional_pieces

    if schedule.split is None:
        return lambda batch: ()
    return proportional_pieces(schedule.split.weights, schedule.split.align)


def claims_of(schedule: Schedule) -> frozenset[tuple[str, str]]:
    """Pairs of steps that windows claim to be concurrent, as the map labels them."""

    def label(step: Step) -> str:
        return step_label(step, schedule.pieces)

    return frozenset(
        (label(left), label(right))
        for section in schedule.sections
        for window in section.windows
        for run, other in combinations(window.runs, 2)
        for left in run.steps
        for right in other.steps
    )


@contextmanager
def _user_code(what: str) -> Iterator[None]:
    """Turn an exception of the target's code into a finding about the target."""
    from dynaflow_dsl.runtime import RuntimeFault

    try:
        yield
    except RuntimeFault as fault:
        raise DiagnosticError([Diagnostic(fault.code, fault.message)]) from fault
    except (Exception, SystemExit) as error:
        message = f"{what} raised {_said(error)}"
        raise DiagnosticError([Diagnostic("DFS110", message)]) from error


def _said(error: BaseException) -> str:
    first, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first}".rstrip(": ")


def _import(path: Path) -> ModuleType | Diagnostic:
    """The module in a file, whatever was made of it; else what is wrong with it."""
    name = relative(path)
    found = spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        return Diagnostic("DFS804", f"{name} is not a Python module")
    module = module_from_spec(found)
    # Importing may leave a folder of compiled Python beside the module: not for a look.
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        return Diagnostic("DFS804", f"importing {name} raised {_said(error)}")
    finally:
        sys.dont_write_bytecode = kept
    if not callable(getattr(module, "load", None)):
        return Diagnostic("DFS804", f"{name} has no function `load`")
    return module


def json_data(value: Any) -> Any:
    """A report as JSON can hold it: null where a difference is infinite."""
    match value:
        case dict():
            return {key: json_data(item) for key, item in value.items()}
        case list() | tuple():
            return [json_data(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value
