"""A trace target to a traced model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from dynaflow_dsl.diagnostics import DiagnosticError, Result
from dynaflow_dsl.graph.model import Graph, TracedModel
from dynaflow_dsl.runtime.collector import no_collections
from dynaflow_dsl.runtime.fingerprint import fingerprint
from dynaflow_dsl.trace.arguments import (
    Call,
    describe,
    example_sizes,
    lowest_sizes,
)
from dynaflow_dsl.trace.contexts import Context
from dynaflow_dsl.trace.convert import convert, dimension_symbols
from dynaflow_dsl.trace.decisions import check_decisions
from dynaflow_dsl.trace.export import (
    Exported,
    ExportFailure,
    export_module,
    wraps_tensors,
)
from dynaflow_dsl.trace.failures import export_failure, refuse, target_failure
from dynaflow_dsl.trace.fields import wrong_field
from dynaflow_dsl.trace.model import Scalar, TraceSpec


@dataclass(frozen=True, slots=True)
class Captured:
    """How the calls of a model were found: its adapter is the model's own code, or
    replays what another tracer, `by`, wrote down.

    `contexts` are those that the stack traces of such a replay name, None where the
    code itself is running.
    """

    by: str = "export"
    contexts: tuple[Context, ...] | None = None


BY_EXPORT = Captured()


def trace(
    spec: TraceSpec,
    target: str,
    arguments: Mapping[str, Scalar],
    captured: Captured = BY_EXPORT,
) -> Result[TracedModel]:
    """Trace every entry of a target.

    `target` and `arguments` say how the spec was made and are kept in the model. What
    cannot be traced or held in a graph is a DFS111 diagnostic.
    """
    try:
        if (problem := wrong_field(spec)) is not None:
            refuse(f"the TraceSpec is wrong: {problem}")
        before = fingerprint(spec.model)
        with no_collections():
            graphs = [_traced(spec, entry, captured.contexts) for entry in spec.entries]
    except DiagnosticError as error:
        return Result(None, error.diagnostics)
    name = type(spec.model).__name__
    facts: dict[str, Scalar] = {"model": name, **spec.facts}
    return Result(
        TracedModel(
            target=target,
            arguments=tuple(arguments.items()),
            model_class=name,
            device=torch.device(spec.device).type,
            dtype=str(spec.dtype).removeprefix("torch."),
            captured_by=captured.by,
            facts=tuple(sorted(facts.items())),
            fingerprint=_of_any_run(before, fingerprint(spec.model)),
            graphs=tuple(graphs),
        )
    )


def _of_any_run(
    before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """What tells models apart, without `values` where a run itself changes them.

    Export sets attributes of modules back, and not those of objects that they hold:
    such as a table that grows with the longest step so far. A model that has not run
    has other values than one that has, and both are the model.
    """
    changed = before.get("values") != after.get("values")
    kept = {key: said for key, said in after.items() if key != "values" or not changed}
    return tuple(sorted(kept.items()))


def _traced(spec: TraceSpec, entry: str, contexts: tuple[Context, ...] | None) -> Graph:
    exported, call = _export(spec, entry)
    if contexts is not None:
        exported = replace(exported, contexts=contexts)
    graph = convert(exported, spec, call)
    check_decisions(
        entry,
        exported.decisions,
        dimension_symbols(exported.program, call),
        example_sizes(spec),
        lowest_sizes(spec),
    )
    return graph


def export_entry(spec: TraceSpec, entry: str) -> torch.export.ExportedProgram:
    """The exported program that `trace` converts.

    Names of its nodes are the names of the graph's operations. Raises DiagnosticError
    where the entry cannot be traced.
    """
    return _export(spec, entry)[0].program


def _export(spec: TraceSpec, entry: str) -> tuple[Exported, Call]:
    _check_evaluation(spec.model)
    _check_device(spec)
    _check_tensors(spec)
    try:
        # The examples may be random: the caller's generator is left as it was.
        with torch.random.fork_rng(_generators(spec)), _evaluating(spec) as adapter:
            call = describe(spec, entry, adapter)
            try:
                exported = export_module(
                    adapter, call.arguments, call.dynamic_shapes, spec.device
                )
            except ExportFailure as error:
                diagnostic = export_failure(error, entry)
            else:
                return exported, call
    except DiagnosticError:
        raise
    except Exception as error:
        diagnostic = target_failure(error, entry)
    raise DiagnosticError([diagnostic])


def _generators(spec: TraceSpec) -> list[int]:
    """Devices beside the CPU whose random numbers the examples may draw."""
    device = torch.device(spec.device)
    if device.type == "cpu" or not torch.cuda.is_available():
        return []
    return [torch.cuda.current_device() if device.index is None else device.index]


def _check_device(spec: TraceSpec) -> None:
    wanted = torch.device(spec.device).type
    module = getattr(torch, wanted, None)
    if wanted != "cpu" and not (module and module.is_available()):
        refuse(
            f"the target is made for {wanted}, which this machine does not have; "
            "operators differ by device",
            helps=("trace on a machine that has it, and check with the snapshot",),
        )


def _check_tensors(spec: TraceSpec) -> None:
    wanted = torch.device(spec.device).type
    tensors = (*spec.model.named_parameters(), *spec.model.named_buffers())
    for path, tensor in tensors:
        if tensor.device.type not in (wanted, "meta"):
            refuse(
                f"'{path}' is on {tensor.device.type}, but the model is traced for "
                f"{wanted}",
                helps=(f"move the model: model.to({wanted!r})",),
            )
        # It would be traced as the one tensor that it says it is.
        if wraps_tensors(tensor):
            refuse(
                f"'{path}' is a {type(tensor).__name__}: one tensor to the graph, and "
                "several to the compiler",
                helps=(
                    "make plain tensors of such weights before the model is traced; "
                    "those of torchao with "
                    "torchao.utils.unwrap_tensor_subclass(model), and model.eval() "
                    "after it",
                ),
            )


def _check_evaluation(model: torch.nn.Module) -> None:
    for path, module in model.named_modules():
        if module.training:
            refuse(
                f"the model is in training mode ('{path or type(module).__name__}')",
                helps=("call model.eval() before the model is traced",),
            )


@contextmanager
def _evaluating(spec: TraceSpec) -> Iterator[torch.nn.Module]:
    """The adapter in evaluation mode; flags are put back afterwards."""
    adapter = spec.adapted()
    if not isinstance(adapter, torch.nn.Module):
        refuse(
            f"'adapter' of the target returns a {type(adapter).__name__}; it must "
            "return a torch.nn.Module"
        )
    flags = [(module, module.training) for module in adapter.modules()]
    adapter.eval()
    try:
        yield adapter
    finally:
        for module, training in flags:
            module.training = training
