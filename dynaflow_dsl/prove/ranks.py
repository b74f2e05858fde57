"""Whether all ranks run the same collectives in the same order.

Every rank runs the same text, so that only a choice by what ranks may see differently
parts them. A `select` is checked where it is decided (DFS122); what is left is the
step that runs `sequential` on a rank with too few rows for the split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from dynaflow_dsl.bind.communicators import alike
from dynaflow_dsl.bind.model import Binding, Body
from dynaflow_dsl.bind.uses import (
    GROUP,
    SYMMETRIC,
    Resource,
    group_of,
    is_collective,
    of_kernel,
)
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.prove.machine import Machine, Step
from dynaflow_dsl.prove.memory import Access
from dynaflow_dsl.resolve.model import Split


class _Meeting(NamedTuple):
    """What the ranks do together: an operation of a step, or the kernel of one."""

    step: Step
    what: str


# The meetings over one process group, or one kernel's memory, in the order of issue.
_Sequence = list[tuple[_Meeting, Access]]


def parting_ranks(
    binding: Binding, scheduled: Machine, sequential: Machine, equal: Collection[str]
) -> Iterator[Diagnostic]:
    """DFS706: with other sizes than its peers, a rank would run other collectives.

    Collectives are the same where they are those of one step and come in one order.
    Where a group brings rows of the split together one by one (an all-reduce), its
    ranks have equally many in any case. Ranks with equally many rows may still have
    them in other phases.
    """
    split = binding.schedule.split
    if split is None or (split.dimension in equal and not split.phases):
        return
    mine = _sequences(binding, scheduled, kernels=True)
    others = _sequences(binding, sequential, kernels=False)
    for over in dict.fromkeys((*mine, *others)):
        run, other = mine.get(over, []), others.get(over, [])
        if [each for each, _ in run] == [each for each, _ in other]:
            continue
        if over.what == GROUP and split.dimension in alike(binding.graph, over.name):
            continue
        yield _parting(binding, split, over, run, other)


def _parting(
    binding: Binding, split: Split, over: Resource, run: _Sequence, other: _Sequence
) -> Diagnostic:
    """What the two have that is not the same, and how the split comes to matter."""
    dimension = split.dimension
    few = f"a rank with too few rows of {dimension} runs 'sequential', which has"
    note = f"nothing says that all ranks have equally many rows of {dimension}"
    ways = [
        f"choose this schedule in a 'select' with 'equal {dimension}' and "
        f"'when {dimension} >= {len(split.weights)}:'",
    ]
    if split.phases:
        few = "a rank without rows of a phase runs 'sequential', which has"
        note = (
            "nothing says that all ranks have rows of the same phases, however many "
            f"of {dimension} there are"
        )
        ways = []
    difference = "other ones"
    same = {each for each, _ in run} == {each for each, _ in other}
    pair = _exchanged(run, other) if same else ()
    if pair:
        difference = "them in another order"
        ways.append(
            f"issue them in the order of the model: {pair[1].label} before "
            f"{pair[0].label}"
        )
    elif any(each.step.piece is not None for each, _ in run):
        ways.append(
            "keep the collectives out of the split: run their parts over all pieces, "
            "as in 'part[*]' of an 'order'"
        )
    kernels = [
        kernel
        for kernel in binding.kernels
        if any(kernel.part == each.step.part for each, _ in (*run, *other))
    ]
    ways += [
        f"leave out 'via {kernel.via.kernel.name}' of part {kernel.part}"
        for kernel in kernels[:3]
    ]
    shown = pair or tuple(access for _, access in (run or other)[:1])
    words = ("comes first here", "comes first there") if pair else ("is one",)
    return Diagnostic(
        "DFS706",
        f"ranks of {over} may run different collectives",
        Label(split.span, f"{few} {difference}"),
        tuple(
            Label(access.span, f"{access.label} {word}")
            for access, word in zip(shown, words, strict=True)
            if access.span is not None
        ),
        notes=(
            note,
            *(
                f"{kernel.part} runs through the kernel '{kernel.via.kernel.name}' "
                "here, and by its own operations in 'sequential'"
                for kernel in kernels
            ),
        ),
        helps=tuple(ways),
    )


def _exchanged(run: _Sequence, other: _Sequence) -> tuple[Access, ...]:
    """Of the first two that change places, which one comes first here and there."""
    for (mine, here), (theirs, _) in zip(run, other, strict=False):
        if mine != theirs:
            return here, next(access for each, access in run if each == theirs)
    return ()


def _sequences(
    binding: Binding, machine: Machine, *, kernels: bool
) -> Mapping[Resource, _Sequence]:
    """What the ranks do together in the order in which a step issues it.

    With `kernels`, parts run through theirs.
    """
    by_body: dict[str, list[Sequence[tuple[Resource, str]]]] = {
        part.name: [tuple(_meetings(body.operations)) for body in part.bodies]
        for part in binding.everything
    }
    for kernel in binding.kernels if kernels else ():
        name = kernel.via.kernel.name
        by_body[kernel.part] = [
            [
                (resource, f"kernel {name}")
                for resource in of_kernel(kernel, body)
                if _meets_ranks(resource, body)
            ]
            for body in next(
                part.bodies for part in binding.parts if part.name == kernel.part
            )
        ]
    instances = {part.name: part.instances for part in binding.everything}
    found: dict[Resource, _Sequence] = defaultdict(list)
    for step, access in machine.accesses.items():
        body = instances[step.part][step.iteration].body
        for number, (resource, what) in enumerate(by_body[step.part][body]):
            over = resource._replace(by_stream=False)
            found[over].append((_Meeting(step, f"{what} {number}"), access))
    return found


def _meets_ranks(resource: Resource, body: Body) -> bool:
    """Whether a kernel that stands for a program meets other ranks over something.

    Memory that ranks write into is there for that where the program has collectives.
    """
    if resource.what == SYMMETRIC:
        return any(map(is_collective, body.operations))
    return resource.what == GROUP


def _meetings(operations: Sequence[Operation]) -> Iterator[tuple[Resource, str]]:
    for each in operations:
        if is_collective(each) and (group := group_of(each)) is not None:
            yield Resource(GROUP, group), each.operator
