"""What a broken rule looks like to the person who wrote the schedule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dynaflow_dsl.bind.uses import GROUP
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.prove.machine import Fault

CODES = {"race": "DFS701", "order": "DFS701", "freed": "DFS702", "shared": "DFS705"}


def diagnostics_of(faults: Iterable[Fault]) -> Iterator[Diagnostic]:
    """One diagnostic for each fault; the same fault in every layer is one."""
    seen: set[tuple[str, str]] = set()
    for fault in faults:
        if (fault.kind, fault.message) not in seen:
            seen.add((fault.kind, fault.message))
            yield _shared(fault) if fault.kind == "shared" else _diagnostic(fault)


def _diagnostic(fault: Fault) -> Diagnostic:
    return Diagnostic(
        CODES.get(fault.kind, "DFS900"),
        fault.message,
        Label(fault.span) if fault.span else None,
        (Label(fault.other, "the other step"),) if fault.other else (),
        notes=(fault.missing,) if fault.missing else (),
    )


def _shared(fault: Fault) -> Diagnostic:
    """What one step may use at a time, used by two."""
    here, there, resource = fault.here, fault.there, fault.resource
    assert here is not None
    assert there is not None
    assert resource is not None
    note = "one step may use it at a time, and nothing orders the two"
    if resource.what == GROUP:
        note = (
            "collectives of a group run one after the other, in one order on all "
            "ranks, and nothing orders the two"
        )
    ways = [f"run both on one stream: '{here.stream}' or '{there.stream}'"]
    # A stage of a `stagger` stands where the stagger puts it.
    staggered = here.span is not None and bool(here.span.uses)
    if here.label != there.label and not staggered:
        other = there.label.removeprefix("prev.")
        ways.append(f"write '{here.label} after {other}' in a window below it")
    if resource.what == GROUP:
        ways.append("give one of them a process group of its own in the model")
    return Diagnostic(
        "DFS705",
        fault.message,
        Label(here.span, f"on {here.stream}") if here.span else None,
        (Label(there.span, f"on {there.stream}"),) if there.span else (),
        notes=(note,),
        helps=tuple(ways),
    )
