"""A binding whose parts with `via` are matched with their kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol

from dynaflow_dsl.bind.kernels import (
    Difference,
    assignments,
    match,
    types_of,
)
from dynaflow_dsl.bind.model import Binding, Body, BoundKernel, KernelCall
from dynaflow_dsl.diagnostics import Diagnostic, Label, Result
from dynaflow_dsl.graph.model import Graph, TensorType, TracedKernel, TrustedKernel
from dynaflow_dsl.resolve.model import Part, Via

# Ways to give a kernel tensors of the part's types, before none is said to fit.
MOST_ASSIGNMENTS = 24


class ReadsKernels(Protocol):
    """Imports kernels and traces their references; that takes torch."""

    def tensors(self, via: Via) -> Result[int]:
        """How many tensors a kernel takes."""

    def trusted(self, via: Via) -> Result[TrustedKernel]:
        """What a kernel says that is not compared with a reference."""

    def trace(
        self, via: Via, types: Sequence[TensorType], graph: Graph
    ) -> Result[TracedKernel]:
        """A kernel's reference, for tensors of these types."""


def bind_kernels(
    binding: Binding, reader: ReadsKernels, device: str
) -> Result[Binding]:
    """Find, for every part with `via`, how its programs call the kernel.

    Finds DFS401 where a part does something else than the reference, or the kernel
    writes what that does not, DFS402 for what cannot be imported, and DFS403 for what
    the device cannot give a kernel.
    """
    through = [part for part in binding.schedule.parts if part.via is not None]
    types = types_of(binding.graph)
    found: list[Diagnostic] = []
    bound: list[BoundKernel] = []
    for part in through:
        assert part.via is not None
        found += unmet_needs(part.via, device)
        if part.via.kernel.trusted:
            said = reader.trusted(part.via)
            found += said.diagnostics
            if (trusted := said.value) is not None:
                bound.append(
                    BoundKernel(
                        part.name,
                        part.via,
                        (),
                        trusted.digest,
                        trusted.tensors,
                        trusted.mutates or (),
                        trusted.communicator,
                        trusted.uses,
                        trusted.mutates is not None,
                        trusted.by_stream,
                    )
                )
            continue
        program = next(each for each in binding.parts if each.name == part.name)
        calls: list[KernelCall] = []
        last: TracedKernel | None = None
        for body in program.bodies:
            result = _bind_body(part, part.via, body, types, binding.graph, reader)
            if result.value is None:
                found += result.diagnostics
                break
            traced, call = result.value
            last = traced
            found += _check_effects(part, part.via, traced)
            calls.append(call)
        if last is not None:
            bound.append(
                BoundKernel(
                    part.name,
                    part.via,
                    tuple(calls),
                    last.digest,
                    communicator=last.communicator,
                    uses=last.uses,
                    declared=last.mutates is not None,
                    by_stream=last.by_stream,
                )
            )
    if found:
        return Result(None, tuple(dict.fromkeys(found)))
    return Result(replace(binding, kernels=tuple(bound)))


def _bind_body(
    part: Part,
    via: Via,
    body: Body,
    types: Mapping[str, TensorType],
    graph: Graph,
    reader: ReadsKernels,
) -> Result[tuple[TracedKernel, KernelCall]]:
    """Try the part's tensors as arguments, in the order of reading first."""
    count = reader.tensors(via)
    if count.value is None:
        return Result(None, count.diagnostics)
    given = len(body.inputs) + len(body.parameters)
    if count.value != given:
        takes, reads = _tensors(count.value), _tensors(given)
        difference = Difference(0, f"reads {reads} from outside", f"takes {takes}")
        return Result(None, (_differs(part, via, difference),))
    deepest: Difference | None = None
    refused: tuple[Diagnostic, ...] = ()
    tried = islice(assignments(body, types, count.value), MOST_ASSIGNMENTS)
    for assigned in tried:
        traced = reader.trace(via, assigned, graph)
        if traced.value is None:
            refused = refused or traced.diagnostics
            continue
        match found := match(body, traced.value):
            case KernelCall():
                return Result((traced.value, found))
            case Difference() if deepest is None or found.depth > deepest.depth:
                deepest = found
    if deepest is not None:
        return Result(None, (_differs(part, via, deepest),))
    return Result(None, tuple(_untraced(via, each) for each in refused))


def _tensors(count: int) -> str:
    return "1 tensor" if count == 1 else f"{count} tensors"


def _differs(part: Part, via: Via, difference: Difference) -> Diagnostic:
    return Diagnostic(
        "DFS401",
        f"part {part.name} is not what kernel '{via.kernel.name}' stands for",
        Label(part.selector.span, "these operations"),
        (Label(via.span, "compared with the reference of this kernel"),),
        notes=(
            f"the part {difference.part}",
            f"the reference {difference.reference}",
        ),
        helps=(
            "select what the kernel does and no more ('dfsc show --parts' lists it), "
            "or change the reference",
        ),
    )


def _untraced(via: Via, refusal: Diagnostic) -> Diagnostic:
    return Diagnostic(
        "DFS401",
        f"the reference of kernel '{via.kernel.name}' cannot be traced with the part's "
        "tensors",
        Label(via.span, "this kernel"),
        notes=(refusal.message, *refusal.notes),
        helps=refusal.helps,
    )


def unmet_needs(via: Via, device: str) -> Iterator[Diagnostic]:
    """What a kernel asks for and a device type does not get in this release."""
    if via.kernel.symmetric_memory and device != "cpu":
        yield Diagnostic(
            "DFS403",
            f"kernel '{via.kernel.name}' asks for symmetric memory, which this release "
            f"does not give on {device}",
            Label(via.kernel.span, "asked for here"),
            (Label(via.span, "this part would need it"),),
            helps=("use a kernel that takes ordinary tensors",),
        )


def _check_effects(part: Part, via: Via, traced: TracedKernel) -> Iterator[Diagnostic]:
    """A kernel writes what its reference writes, and nothing else."""
    if traced.mutates is None:
        return
    inputs = {item.name for item in traced.graph.inputs}
    written = {name for each in traced.graph.operations for name in each.writes}
    for name in sorted(set(traced.mutates) - written):
        yield Diagnostic(
            "DFS401",
            f"kernel '{via.kernel.name}' writes '{name}', and its reference does not",
            Label(via.span, f"part {part.name} would change what others read"),
            helps=("return a new tensor instead, or let the reference write it too",),
        )
    for name in sorted((written & inputs) - set(traced.mutates)):
        yield Diagnostic(
            "DFS401",
            f"the reference of kernel '{via.kernel.name}' writes '{name}', and the "
            "kernel says that it does not",
            Label(via.span, "declared otherwise"),
            helps=(f"add '{name}' to 'mutates' of the kernel",),
        )
