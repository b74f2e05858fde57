"""`dfsc verify`: run scheduled beside unscheduled and compare."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from dynaflow_dsl.bind.faults import describe
from dynaflow_dsl.bind.model import AFTER, BEFORE, Binding
from dynaflow_dsl.cli.choices import MOST_ROWS, expected_choice, sizes_to_try
from dynaflow_dsl.cli.files import relative
from dynaflow_dsl.cli.foreign import faults_shown, import_module_file, user_code
from dynaflow_dsl.cli.given_files import given_by_file
from dynaflow_dsl.cli.launched import joined_ranks, met, rank_timeout_option
from dynaflow_dsl.cli.making import Made, Wanted, make_to_run
from dynaflow_dsl.cli.models import LoadedModel
from dynaflow_dsl.cli.modules import ModuleFiles, default_folder, folder_option
from dynaflow_dsl.cli.on_device import Request, overlap, stress
from dynaflow_dsl.cli.options import (
    Given,
    fact_option,
    model_options,
    parameter_option,
)
from dynaflow_dsl.cli.repairs import by_command
from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.cli.running import chosen_files, current_project, going_on
from dynaflow_dsl.cli.sizes import (
    USUAL,
    all_filled,
    allowed_sizes,
    captured_phases,
    pieces_of,
    split_dimension,
    step_sizes,
    with_captured,
)
from dynaflow_dsl.cli.staleness import compare, told
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.resolve import Selection
from dynaflow_dsl.resolve.model import Scalar, Schedule, Step
from dynaflow_dsl.resolve.steps import step_label

EDITED = "DFS504"


@click.command("verify")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@folder_option
@model_options
@parameter_option
@fact_option
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(min=1),
    multiple=True,
    help=f"Size of the split dimension; repeat for more. {USUAL} by default, and the "
    "smallest sizes that fill every piece.",
)
@click.option("--device", help="Device to run on; that of the target by default.")
@click.option(
    "--text-only",
    is_flag=True,
    help="Run the module's text as it stands, without compiling its parts.",
)
@click.option(
    "--stress",
    "trials",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also repeat a step N times with random delays before its steps: on a CUDA "
    "device eager and as a captured graph, elsewhere with its streams interleaved in "
    "random order. Says which two steps a different result depends on.",
)
@click.option(
    "--overlap",
    "measured",
    is_flag=True,
    help="Compare nothing; measure on a CUDA device how much of each window really ran "
    "at the same time.",
)
@click.option(
    "--min-overlap",
    "minimum",
    type=click.FloatRange(0.0, 1.0),
    default=0.3,
    show_default=True,
    help="The least median share of the shorter step that a window may overlap.",
)
@click.option(
    "--one-stream",
    is_flag=True,
    help="With --overlap: run everything on one stream, where every share must be 0.",
)
@click.option(
    "--eager",
    is_flag=True,
    help="With --overlap: issue each step anew instead of replaying a captured graph.",
)
@rank_timeout_option
@output_format_option
@click.pass_obj
def command(
    reporter: Reporter,
    paths: tuple[str, ...],
    folder: str | None,
    model: str | None,
    model_arguments: Mapping[str, Scalar],
    parameters: Mapping[str, str],
    facts: Mapping[str, Scalar],
    batches: tuple[int, ...],
    device: str | None,
    text_only: bool,
    trials: int | None,
    measured: bool,
    minimum: float,
    one_stream: bool,
    eager: bool,
    rank_seconds: int,
) -> int:
    """Run the modules of schedule files beside their models, and compare.

    Runs the module in DIR, or what compile would write if there is none. Results must
    equal the same pieces on one stream bit for bit, and the unsplit model but for
    rounding; the order of streams is recorded and checked for races and early frees.
    Started by torchrun, all ranks run together, and are compared with the whole model.
    """
    for name, named in (("--one-stream", one_stream), ("--eager", eager)):
        if named and not measured:
            raise click.UsageError(f"{name} is for --overlap")
    project = current_project(reporter)
    files = chosen_files(project, paths)
    given = given_by_file(Given(parameters, facts), project, files)
    request = Request(
        Wanted(project, model, model_arguments, given),
        Path(folder) if folder is not None else default_folder(project),
        batches,
        device,
        compiled=not text_only,
        stress=trials or 0,
        overlap=minimum if measured else None,
        one_stream=one_stream,
        replay=not eager,
    )
    with joined_ranks(reporter, rank_seconds) as meet:
        for path in files:
            with met(reporter, meet), going_on(reporter, path):
                _verify_file(reporter, path, request, several=len(files) > 1)
    return reporter.code


def _verify_file(
    reporter: Reporter, path: str, request: Request, *, several: bool
) -> None:
    made = make_to_run(reporter, path, request.wanted, request.folder)
    if made is None:
        return
    if several:
        reporter.say(f"{path}:")
    with tempfile.TemporaryDirectory() as temporary:
        files = ModuleFiles.of(request.folder, made.module.name)
        if files.module.is_file():
            repair = request.wanted.compile_command(
                path, request.folder, made.given, made.loaded.traced.target
            )
            differences = compare(relative(files.module), files.read(), made.text)
            found = told(differences, by_command(repair))
            reporter.show(found)
            # A stale module has other parts than the model; an edited one is worth a
            # run, which shows what the edit broke.
            if any(item.code != EDITED for item in found):
                return
        else:
            name = relative(files.module)
            reporter.say(f"there is no {name}: verifying what compile would write")
            files = made.write(Path(temporary))
        module = import_module_file(files.module)
        bindings = made.module.bindings
        for asked, look in (
            (request.stress > 0, stress),
            (request.overlap is not None, overlap),
        ):
            if asked:
                for binding in bindings:
                    look(reporter, module, made, binding, request, _tell)
        if request.overlap is not None:
            return
        fine = [
            _verify(reporter, module, made, binding, request) for binding in bindings
        ]
        if made.module.selection is not None:
            fine.append(
                _verify_choices(reporter, module, made, made.module.selection, request)
            )
        if all(fine):
            _try_out(reporter, module, made, request)


def _verify(
    reporter: Reporter,
    module: ModuleType,
    made: Made,
    binding: Binding,
    request: Request,
) -> bool:
    # Torch takes a second to import, and help on this command needs none.
    from dynaflow_dsl.trace import export_entry
    from dynaflow_dsl.verification.verify import verify

    spec, graph, schedule = made.loaded.spec, binding.graph, binding.schedule
    device = request.device_for(spec)
    with faults_shown(reporter):
        report = verify(
            module,
            spec.model,
            _make_arguments(made.loaded, graph, schedule),
            export_entry(spec, graph.entry),
            _whole(binding),
            pieces_of(schedule),
            adapter=spec.adapted(),
            batches=_sizes_to_run(request, graph, schedule, device),
            entry=graph.entry,
            schedule=schedule.name,
            claims=claims_of(schedule),
            row_claims=row_claims(binding),
            dimension=split_dimension(graph, schedule),
            compiled=request.compiled,
            tell=reporter.say,
            device=device,
            # What the command line says of a machine holds here too.
            facts=made.given.facts,
            context=spec.context,
        )
        return _tell(reporter, report)
    return False


def _verify_choices(
    reporter: Reporter,
    module: ModuleType,
    made: Made,
    selection: Selection,
    request: Request,
) -> bool:
    """Run steps that reach every line of a `select`, and those at its borders."""
    from dynaflow_dsl.runtime import Selected
    from dynaflow_dsl.verification.choices import verify_choices

    spec = made.loaded.spec
    graphs = {graph.entry: graph for graph in made.loaded.traced.graphs}
    schedules = {
        binding.schedule.name: binding.schedule for binding in made.module.bindings
    }

    def fills(name: str, sizes: Mapping[str, int]) -> bool:
        split = schedules[name].split
        if split is None:
            return True
        rows = sizes if split.phases else sizes[split.dimension]
        return all_filled(pieces_of(schedules[name])(rows))

    with faults_shown(reporter):
        given = module.load(
            spec.model,
            request.device_for(spec),
            compile=request.compiled,
            facts=made.given.facts,
            context=spec.context,
        )
        fine = []
        for choices in selection.entries:
            graph = graphs[choices.entry]
            selected = getattr(given, choices.entry, given)
            assert isinstance(selected, Selected)
            report = verify_choices(
                selected,
                f"{module.__name__}.py",
                spec.model,
                partial(made.loaded.arguments, graph.entry),
                expected_choice(selection, graph, fills),
                [
                    {**sizes, **spec.entries[graph.entry].shares(sizes)}
                    for sizes in sizes_to_try(selection, choices, graph)
                ],
                most_rows=MOST_ROWS,
                phases=[name for _, names in graph.phases for name in names],
                adapter=spec.adapted(),
            )
            fine.append(_tell(reporter, report))
        return all(fine)
    return False


def _try_out(
    reporter: Reporter, module: ModuleType, made: Made, request: Request
) -> None:
    """Let a target that knows its model's loop run it with the scheduled steps."""
    from dynaflow_dsl.verification.trial import run_trial
    from dynaflow_dsl.verification.verify import find_executor

    spec, bindings = made.loaded.spec, made.module.bindings
    selects = made.module.selection is not None
    several = not selects and len({b.schedule.name for b in bindings}) > 1
    if spec.trial is None or several:
        return
    if not callable(spec.trial):
        message = f"the trial of the target is a {type(spec.trial).__name__}"
        reporter.show([Diagnostic("DFS110", f"{message}, and must be a function")])
        return
    first = bindings[0]
    rows = allowed_sizes(request.batches, first.graph, first.schedule)
    with faults_shown(reporter):
        loaded = module.load(
            spec.model,
            request.device_for(spec),
            compile=request.compiled,
            facts=made.given.facts,
            context=spec.context,
        )
        steps: dict[str, Callable[..., Any]] = {
            entry: getattr(loaded, entry, loaded)
            if selects
            else find_executor(loaded, entry)
            for entry in (binding.graph.entry for binding in bindings)
        }
        with user_code("the trial of the target"):
            report = run_trial(spec.trial, steps, rows)
        _tell(reporter, report)


def _tell(reporter: Reporter, report: Any) -> bool:
    """Give a report, which is a dataclass that says whether it is `ok`."""
    if not (report.ok and reporter.silent):
        reporter.result(str(report), json_data(asdict(report)))
    if not report.ok:
        reporter.fail()
    return bool(report.ok)


def _sizes_to_run(
    request: Request, graph: Graph, schedule: Schedule, device: str
) -> list[int | dict[str, int]]:
    """Rows of the split dimension, or of each of its phases; captured ones as well."""
    wanted = allowed_sizes(request.batches, graph, schedule)
    totals = with_captured(wanted, graph, schedule, device)
    captured = captured_phases(schedule, device)
    sizes = step_sizes(totals, schedule)
    return [*sizes, *(one for one in captured if one not in sizes)]


def _make_arguments(
    loaded: LoadedModel, graph: Graph, schedule: Schedule
) -> Callable[[Any], Sequence[Any]]:
    """Arguments for a size of the split dimension.

    The others are as they were traced: with one token in a row no mask is put to the
    test. Where steps are captured, they are as small as allowed, as for the graphs.
    """
    lowest = {name: low for name, low, _ in graph.dimensions}

    def make(batch: int | Mapping[str, int]) -> Sequence[Any]:
        sizes = dict(lowest) if schedule.captures else {}
        dimension = split_dimension(graph, schedule)
        if isinstance(batch, int):
            sizes |= {dimension: batch} if dimension else {}
        else:
            sizes |= {**batch, dimension: sum(batch.values())}
        return loaded.arguments(graph.entry, sizes)

    return make


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


def row_claims(binding: Binding) -> list[Any]:
    """What the file states of rows, in words of the model."""
    from dynaflow_dsl.verification.rows import RowClaim

    operations = {operation.name: operation for operation in binding.graph.operations}
    claims = []
    for stated in binding.stated:
        first, *others = stated.relied
        reason = f"{describe(operations[first.operation])}: {first.reason}"
        if others:
            reason += f", and {len(others)} more"
        word = "part" if len(stated.parts) == 1 else "parts"
        who = f"{word} {', '.join(stated.parts)}"
        if stated.source != "file":
            reason = f"{describe(operations[first.operation])}, {who}"
        if stated.source == "target":
            who = "'disjoint' of the target"
        elif stated.source == "plug-in":
            who = f"the plug-in of {operations[first.operation].operator}"
        claims.append(
            RowClaim(
                who,
                stated.operations,
                stated.results,
                reason,
            )
        )
    return claims


def claims_of(schedule: Schedule) -> frozenset[tuple[str, str]]:
    """Pairs of steps that windows claim to be concurrent, as the map labels them."""

    def label(step: Step) -> str:
        return step_label(step, schedule.piece_names)

    return frozenset(
        (label(left), label(right))
        for section in schedule.sections
        for window in section.windows
        for run, other in combinations(window.runs, 2)
        for left in run.steps
        for right in other.steps
    )


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
