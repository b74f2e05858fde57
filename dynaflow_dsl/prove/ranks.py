"""Whether all ranks run the same collectives in the same order.

Every rank runs the same text, so that only a choice by what ranks may see differently
parts them. A `select` is checked where it is decided (DFS122); what is left is the
step that runs `sequential` on a rank with too few rows for the split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from dynaflow_dsl.bind.communicators import alike
from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.bind.uses import group_of, is_collective
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.prove.machine import Machine
from dynaflow_dsl.source import Span


def parting_ranks(
    binding: Binding, scheduled: Machine, sequential: Machine, equal: Collection[str]
) -> Iterator[Diagnostic]:
    """DFS706: with other sizes than its peers, a rank would run other collectives.

    Where a group brings rows of the split together one by one (an all-reduce), its
    ranks have equally many in any case.
    """
    split = binding.schedule.split
    if split is None or split.dimension in equal:
        return
    mine, others = _sequences(binding, scheduled), _sequences(binding, sequential)
    for group, run in mine.items():
        if [each for each, _ in run] == [each for each, _ in others.get(group, [])]:
            continue
        if split.dimension in alike(binding.graph, group):
            continue
        label, span = run[0][1]
        others_label = (Label(span, f"{label} is one"),) if span is not None else ()
        least = len(split.weights)
        yield Diagnostic(
            "DFS706",
            f"ranks of the process group '{group}' may run different collectives",
            Label(
                split.span,
                f"a rank with too few rows of {split.dimension} runs 'sequential', "
                "which has other ones",
            ),
            others_label,
            notes=(
                f"nothing says that all ranks have equally many rows of "
                f"{split.dimension}",
            ),
            helps=(
                f"choose this schedule in a 'select' with 'equal {split.dimension}' "
                f"and 'when {split.dimension} >= {least}:'",
                "keep the collectives out of the split: run their parts over all "
                "pieces, as in 'part[*]'",
            ),
        )


def _sequences(
    binding: Binding, machine: Machine
) -> Mapping[str, list[tuple[str, tuple[str, Span | None]]]]:
    """The collectives of each group in the order in which a step issues them."""
    by_body = {
        part.name: [
            [
                (group, each.operator)
                for each in body.operations
                if is_collective(each) and (group := group_of(each)) is not None
            ]
            for body in part.bodies
        ]
        for part in binding.everything
    }
    instances = {part.name: part.instances for part in binding.everything}
    found: dict[str, list[tuple[str, tuple[str, Span | None]]]] = defaultdict(list)
    for step, access in machine.accesses.items():
        body = instances[step.part][step.iteration].body
        for group, operator in by_body[step.part][body]:
            found[group].append((operator, (access.label, access.span)))
    return found
