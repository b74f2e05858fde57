"""Compares a generated module with the model it was made from, by running both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from dynaflow_dsl.runtime.errors import LoadError, RuntimeFault
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.inputs import factors
from dynaflow_dsl.runtime.model import TensorSpec
from dynaflow_dsl.runtime.module_map import ModuleMap, read_map
from dynaflow_dsl.runtime.select import Selected
from dynaflow_dsl.runtime.shared_code import shared_code
from dynaflow_dsl.runtime.streams import one_stream
from dynaflow_dsl.verification.captured import Captured
from dynaflow_dsl.verification.kernels import KernelTrials
from dynaflow_dsl.verification.recording import Recorder, Recording
from dynaflow_dsl.verification.reference import Context, run_reference
from dynaflow_dsl.verification.report import (
    Comparison,
    Phases,
    Recorded,
    Report,
    step_size,
)
from dynaflow_dsl.verification.results import (
    Result,
    compare,
    run_on_copies,
    side_by_side,
)
from dynaflow_dsl.verification.rows import RowClaim, Sample, try_claims
from dynaflow_dsl.verification.spread import find_spread, unrepeatable
from dynaflow_dsl.verification.state import ModelState

# Rows of a step, or the rows of each phase in order.
StepSize: TypeAlias = int | Mapping[str, int]

# Device types on which steps become graphs.
CAPTURING = ("cuda",)


def _nothing(text: str) -> None:
    pass


def verify(
    module: ModuleType,
    model: torch.nn.Module,
    make_arguments: Callable[[Any], Sequence[Any]],
    exported: ExportedProgram,
    whole: Collection[str],
    pieces_of: Callable[[Any], Sequence[slice]],
    *,
    adapter: Callable[..., Any] | None = None,
    batches: Sequence[StepSize] = (1, 2, 3, 8),
    entry: str | None = None,
    schedule: str | None = None,
    claims: Collection[tuple[str, str]] = (),
    row_claims: Sequence[RowClaim] = (),
    compiled: bool = True,
    context: Context | None = None,
    dimension: str = "batch",
    seed: int = 0,
    tell: Callable[[str], None] = _nothing,
    **options: Any,
) -> Report:
    """Run `module` in every way it can run and compare with the model.

    `make_arguments(batch)` makes arguments of the adapter, drawn from torch's global
    generator; a batch is a number of rows, or for a step that is cut by phase the rows
    of each phase. `adapter` is what they are for (None: the model). `exported` is the
    adapter's exported program, `whole` its nodes that the schedule runs once, and
    `pieces_of(batch)` the slices of the others: empty when there is no split. `entry`
    and `schedule` name one of several executors. `claims` are pairs of steps, by the
    labels of the module's map, that must be unordered, and `row_claims` say of which
    operations it is only stated that they are row-wise. Steps of a piece run in
    `context` of its rows. `dimension` is what batches are sizes of. `tell` is told what
    graphs will take before any is made. `options` go to the module's `load`.

    For each batch: the module's text, eager, against the reference on the same pieces,
    bit for bit, every output, every input that may be written and every buffer that is
    (within a tolerance where parts run through kernels, whose every call is compared
    with the part's text);
    the compiled module against the same reference, and against the adapter, within a
    tolerance, and on a device with streams against itself on one stream, bit for bit;
    where one stream is not equal to itself, the operation is named, and its own spread
    is the tolerance; and one step on recording streams, for races, early frees and
    claims. On a device that captures, steps of captured sizes are also replayed as
    graphs, and compared with the compiled module; a size that cannot be captured fails.
    Claims about rows are held against the numbers of the reference, cut in pieces and
    with one row replaced.
    Each run starts from the model's buffers as they were, and so does the caller.
    """
    options["context"] = context
    called = adapter if adapter is not None else model
    recorder = Recorder()
    text = find_executor(
        module.load(model, compile=False, streams=recorder.streams, **options),
        entry,
        schedule,
    )
    kernels = KernelTrials()
    kernels.watch(text)
    ways: dict[str, Executor] = {}
    if compiled:
        with shared_code():
            loaded = module.load(model, compile=True, capture=False, **options)
            ways["compiled"] = find_executor(loaded, entry, schedule)
            if text.device.type in CAPTURING:
                loaded = module.load(
                    model, compile=True, capture=False, streams=one_stream, **options
                )
                ways["one stream"] = find_executor(loaded, entry, schedule)
    module_map = read_map(Path(type(text).step.__code__.co_filename))
    split_input = _split_input(text)
    weights = _weights(called, model)
    state = ModelState(*modules_of(called, model))
    captured: Captured | None = None
    if compiled and text.capture is not None and text.device.type in CAPTURING:
        loaded = module.load(model, compile=True, **options)
        graphs = find_executor(loaded, entry, schedule)
        graphs.compare_no_kernels()
        tell(str(graphs.report()))
        captured = Captured(graphs, state.restore)
    for executor in ways.values():
        # What a kernel gives is compared in the text, and here what the step does.
        executor.compare_no_kernels()
    comparisons: list[Comparison] = []
    recordings: list[Recorded] = []
    failures: list[str] = []
    samples: list[Sample] = []
    for size in batches:
        batch = size if isinstance(size, int) else sum(size.values())
        phases: Phases = () if isinstance(size, int) else tuple(size.items())
        by_phase = {} if isinstance(size, int) else {"phases": dict(size)}
        with torch.random.fork_rng():
            torch.manual_seed(seed + batch)
            arguments = make_arguments(size)
        text.assumed_phases = dict(phases) or None
        names = input_names(text, arguments)
        pieces = pieces_of(size)
        if any(piece.start >= piece.stop for piece in pieces):
            pieces = ()  # a step with an empty piece runs unsplit
        samples.append(Sample(arguments, pieces))

        def reference(*given: Any, pieces: Sequence[slice] = pieces) -> Any:
            return run_reference(
                exported,
                weights,
                given,
                whole,
                pieces,
                split_input=split_input,
                context=context,
            )

        def adapted(*given: Any) -> Any:
            with torch.no_grad():
                return called(*given)

        def recorded(
            *given: Any,
            batch: int = batch,
            phases: Phases = phases,
            by_phase: Mapping[str, Mapping[str, int]] = by_phase,
        ) -> Any:
            constants = list(weights.values())
            recording = recorder.run(text, given, constants, **by_phase)
            found = _recorded(batch, recording, module_map, claims)
            recordings.append(replace(found, phases=phases, dimension=dimension))
            return recording.outputs

        expected = run_on_copies(reference, arguments, state)
        unsplit = run_on_copies(adapted, arguments, state)
        made: dict[str, Result] = {}
        tried: dict[str, Callable[..., Any]] = {"text": recorded}
        tried |= {what: partial(way, **by_phase) for what, way in ways.items()}
        if captured is not None and _is_captured(text, batch, dict(phases)):
            tried["captured"] = partial(captured, **by_phase)
        for what, step in tried.items():
            try:
                made[what] = run_on_copies(step, arguments, state)
            except RuntimeFault:
                raise
            except Exception as error:  # whatever an edited module does
                said = f"{type(error).__name__}: {error}".partition("\n")[0]
                size_said = step_size(batch, phases, dimension)
                failures.append(f"{size_said}: {what} raised {said}")
        pairs = [("text", "reference", expected, not kernels.trials)]
        pairs += [(what, "reference", expected, False) for what in ways]
        pairs.append(("compiled" if compiled else "text", "model", unsplit, False))
        if "one stream" in made and "compiled" in made:
            pairs.append(("compiled", "one stream", made["one stream"], True))
        if "captured" in made and "compiled" in made:
            # Libraries may choose other kernels where several streams are busy.
            pairs.append(("captured", "compiled", made["compiled"], False))
        for what, against, other, exact in pairs:
            if (one := made.get(what)) is None:
                continue
            labels, given, wanted = side_by_side(one, other, names, state)
            compared = compare(batch, labels, what, given, against, wanted, exact=exact)
            if exact and not compared.ok:
                repeated = ways.get(against, reference)
                spread = find_spread(
                    lambda: run_on_copies(repeated, arguments, state),  # noqa: B023
                    other,
                    lambda: unrepeatable(text, arguments, state),  # noqa: B023
                )
                if spread is not None:
                    compared = compare(
                        batch,
                        labels,
                        what,
                        given,
                        against,
                        wanted,
                        exact=False,
                        allowed=spread.allowed,
                        because=str(spread),
                    )
            comparisons.append(replace(compared, phases=phases, dimension=dimension))
    if captured is not None:
        failures += (
            f"{k} is not captured: {why}" for k, why in captured.refused.items()
        )
    rows = try_claims(
        row_claims,
        exported,
        weights,
        samples,
        split_input,
        state.restore,
        context,
        dimension,
    )
    return Report(
        module_map.module,
        text.entry,
        tuple(comparisons),
        tuple(recordings),
        tuple(failures),
        "" if f"{text.schedule}.py" == module_map.module else text.schedule,
        tuple(kernels.trials),
        rows,
    )


def proportional_pieces(
    weights: Sequence[int | str | Fraction], align: int = 1
) -> Callable[[int], tuple[slice, ...]]:
    """The slices of a batch that weights stand for, computed from first principles.

    Cut k is the multiple of `align` nearest to the batch times the share of the first k
    weights, halves rounded up, and never beyond the batch.
    """
    exact = [Fraction(weight) for weight in weights]

    def pieces_of(batch: int) -> tuple[slice, ...]:
        cuts = [0]
        for count in range(1, len(exact)):
            share = sum(exact[:count], Fraction()) / sum(exact, Fraction())
            ideal = batch * share / align
            below = ideal.numerator // ideal.denominator
            nearest = below + (ideal - below >= Fraction(1, 2))
            cuts.append(min(nearest * align, batch))
        cuts.append(batch)
        return tuple(slice(cuts[k], cuts[k + 1]) for k in range(len(exact)))

    return pieces_of


def phase_pieces(phases: Sequence[str]) -> Callable[[Mapping[str, int]], list[slice]]:
    """The slices of a step that is cut by phase: the rows of each follow the others."""

    def pieces_of(rows: Mapping[str, int]) -> list[slice]:
        found: list[slice] = []
        start = 0
        for name in phases:
            found.append(slice(start, start + rows[name]))
            start += rows[name]
        return found

    return pieces_of


def find_executor(
    loaded: Any,
    entry: str | None = None,
    schedule: str | None = None,
    phases: Mapping[str, int] | None = None,
) -> Executor:
    """The executor of an entry and a schedule among those that a module has.

    None stands for any. `phases` are the rows of each phase in all of its steps.
    Raises LoadError (DFS804) where there is not exactly one.
    """
    listed: list[Executor] = []
    single = isinstance(loaded, Executor | Selected)
    for one in [loaded] if single else vars(loaded).values():
        listed += one.executors.values() if isinstance(one, Selected) else [one]
    found = [
        executor
        for executor in listed
        if entry in (None, executor.entry) and schedule in (None, executor.schedule)
    ]
    # Modules of before executors had the name of their schedule.
    found = found or [
        executor
        for executor in listed
        if entry in (None, executor.entry) and not executor.schedule
    ]
    if len(found) == 1:
        found[0].assumed_phases = phases
        return found[0]
    wanted = f"schedule `{schedule}`, entry `{entry}`"
    raise LoadError(
        "DFS804",
        f"the module has {len(found)} executors of {wanted}: compile it again.",
    )


def _is_captured(executor: Executor, batch: int, phases: Mapping[str, int]) -> bool:
    """Whether a step of this size, others being as small as can be, is captured."""
    capture = executor.capture
    if capture is None:
        return False
    split = executor.split.dimension if executor.split is not None else None
    first = split if split is not None else next(iter(capture.sizes))
    smallest = {name: low for name, (low, _) in executor.dimensions.items()}
    wanted = {**smallest, first: batch, **phases}
    return all(wanted.get(name) in sizes for name, sizes in capture.sizes.items())


def modules_of(*given: Any) -> list[torch.nn.Module]:
    """Those of the given callables that are modules."""
    return [one for one in given if isinstance(one, torch.nn.Module)]


def _weights(called: Any, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    module = called if isinstance(called, torch.nn.Module) else model
    found: dict[str, torch.Tensor] = {}
    for tensors in (
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    ):
        found.update((name, tensor.detach()) for name, tensor in tensors)
    return found


def _split_input(executor: Executor) -> tuple[int, int] | None:
    """Flat position and axis of the first input that has the split dimension."""
    if executor.split is None:
        return None
    position = 0
    for spec in executor.inputs.values():
        listed = [spec] if isinstance(spec, TensorSpec) else spec
        for one in listed:
            for axis, size in enumerate(one.shape):
                if factors(size) == (1, (executor.split.dimension,)):
                    return position, axis
            position += 1
    return None


def input_names(executor: Executor, arguments: Sequence[Any]) -> list[str]:
    """The names of the tensors among the arguments of a step."""
    found: list[str] = []
    for name, argument in zip(executor.inputs, arguments, strict=True):
        leaves = tree_leaves(argument)
        if isinstance(argument, torch.Tensor):
            found.append(name)
        else:
            found += [f"{name}[{k}]" for k in range(len(leaves))]
    return found


def _recorded(
    batch: int,
    recording: Recording,
    module_map: ModuleMap,
    claims: Collection[tuple[str, str]],
) -> Recorded:
    def label(line: int) -> str | None:
        entry = module_map.plan_lines(line)
        return None if entry is None else entry.label

    unordered: set[tuple[str, str]] = set()
    for first, second in recording.concurrent_lines():
        one, other = label(first), label(second)
        if one is not None and other is not None:
            unordered.add((min(one, other), max(one, other)))
    # A step that did nothing here, or that this run has not, is never unordered.
    ran = {label(block.line) for block in recording.blocks}
    ordered = {
        (one, other)
        for one, other in claims
        if one in ran
        and other in ran
        and (min(one, other), max(one, other)) not in unordered
    }
    return Recorded(
        batch,
        recording.operations,
        recording.faults,
        tuple(sorted(unordered)),
        tuple(sorted(ordered)),
        module_map.intact,
    )
