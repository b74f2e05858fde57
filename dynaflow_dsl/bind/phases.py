"""The phases of a split against those that the model's entry has."""

from __future__ import annotations

from difflib import get_close_matches

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.resolve.model import Split


def check_phases(split: Split, graph: Graph) -> Diagnostic | None:
    """What is wrong with the phases that a split names: DFS102 for a name that is
    none, DFS603 where the entry has other ones.

    Pieces are all phases of the dimension, in the order in which their rows lie there.
    """
    known = dict(graph.phases).get(split.dimension)
    if known is None:
        return _without_phases(split, graph)
    for phase in split.phases:
        if phase.text not in known:
            near = get_close_matches(phase.text, known, n=1)
            listed = f"phases of this entry: {', '.join(known)}"
            return Diagnostic(
                "DFS102",
                f"{split.dimension} has no phase '{phase.text}'",
                Label(phase.span, "unknown"),
                helps=(f"did you mean '{near[0]}'?" if near else listed,),
            )
    wanted = f"write 'split {split.dimension} into [{', '.join(known)}] as"
    if missing := [name for name in known if name not in split.pieces]:
        return Diagnostic(
            "DFS603",
            f"no piece has the rows of the phase '{missing[0]}'",
            Label(split.phases[-1].span, f"'{missing[0]}' is not in this list"),
            notes=(f"the entry '{graph.entry}' has the phases {', '.join(known)}",),
            helps=(f"{wanted} {split.index}'",),
        )
    for phase, name in zip(split.phases, known, strict=True):
        if phase.text != name:
            return Diagnostic(
                "DFS603",
                f"the rows of '{name}' lie before those of '{phase.text}'",
                Label(phase.span, f"'{name}' comes here"),
                helps=(f"{wanted} {split.index}'",),
            )
    return None


def _without_phases(split: Split, graph: Graph) -> Diagnostic:
    first = split.phases[0]
    others = [name for name, _ in graph.phases]
    names = ", ".join(f'"{phase.text}"' for phase in split.phases)
    count = len(split.phases)
    helps = [
        f'a trace target says which: Entry(..., phases={{"{split.dimension}": '
        f"({names})}})",
        f"or cut by number: split {split.dimension} into {count} as {split.index}",
    ]
    if others:
        helps.insert(0, f"dimensions with phases: {', '.join(others)}")
    return Diagnostic(
        "DFS603",
        f"{split.dimension} has no phases in the entry '{graph.entry}'",
        Label(first.span, "neither a phase of the model nor a parameter"),
        helps=tuple(helps),
    )
