"""What a broken rule looks like to the person who wrote the schedule."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from dynaflow_dsl.bind.model import AFTER, BEFORE, GAP
from dynaflow_dsl.bind.uses import GROUP
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.prove.machine import Fault, Kind
from dynaflow_dsl.prove.memory import Access
from dynaflow_dsl.resolve.model import MAIN
from dynaflow_dsl.source import Span

REPORT = "report it with the schedule: waits and frees are the compiler's work"

CODES: dict[Kind, str] = {
    "unbound": "DFS707",
    "value": "DFS707",
    "order": "DFS701",
    "race": "DFS701",
    "shared": "DFS705",
    "freed": "DFS702",
}
# What breaks one rule often breaks those below it as well.
_FIRST = tuple(CODES)


def diagnostics_of(
    faults: Iterable[Fault], kernels: Collection[str] = ()
) -> Iterator[Diagnostic]:
    """One diagnostic for each fault; the same two places in every layer are one.

    `kernels` are the parts that run through one.
    """
    seen: set[tuple[object, ...]] = set()
    for fault in sorted(faults, key=lambda fault: _FIRST.index(fault.kind)):
        key: tuple[object, ...] = (fault.kind, fault.message)
        if fault.span is not None and fault.other is not None:
            key = (fault.kind, _place(fault.span), _place(fault.other), fault.resource)
        if key not in seen:
            seen.add(key)
            if fault.kind == "shared":
                yield _shared(fault, kernels)
            else:
                yield _diagnostic(fault)


def _place(span: Span) -> tuple[int, int]:
    return span.start, span.end


def _diagnostic(fault: Fault) -> Diagnostic:
    return Diagnostic(
        CODES[fault.kind],
        fault.message,
        Label(fault.span) if fault.span else None,
        (Label(fault.other, "the other step"),) if fault.other else (),
        notes=(fault.missing,) if fault.missing else (),
        helps=tuple(_ways_out(fault)),
    )


def _ways_out(fault: Fault) -> Iterator[str]:
    """Waits and frees are the compiler's work, so there is a way around alone."""
    yield REPORT
    here, there = fault.here, fault.there
    if here is None or there is None or here.stream == there.stream:
        return
    # What no part holds runs on main.
    parts = sorted({_part(each) for each in (here, there) if each.layer is not None})
    parts = [name for name in parts if name not in (BEFORE, AFTER, GAP)]
    if len(parts) == 2:
        yield f"until then, run {parts[0]} and {parts[1]} on one stream"
    elif parts:
        yield f"until then, run {parts[0]} on {MAIN}"


def _part(access: Access) -> str:
    return access.label.removeprefix("prev.").partition("[")[0]


def _shared(fault: Fault, kernels: Collection[str]) -> Diagnostic:
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
    other = _seen_from(here, there)
    if other is not None and not staggered:
        ways.append(f"write '{here.label} after {other}' in a window below it")
    if resource.what == GROUP:
        through = [one for one in map(_part, (here, there)) if one in kernels]
        ways.append(
            f"give the kernel of {through[0]} another process group as 'communicator'"
            if through
            else "give one of them a process group of its own in the model"
        )
    return Diagnostic(
        "DFS705",
        fault.message,
        Label(here.span, f"on {here.stream}") if here.span else None,
        (Label(there.span, f"on {there.stream}"),) if there.span else (),
        notes=(note,),
        helps=tuple(ways),
    )


def _seen_from(here: Access, there: Access) -> str | None:
    """How an `after` at one step calls the other; None where it cannot."""
    if here.layer is None or there.layer is None:
        return None
    name = there.label.removeprefix("prev.")
    passes = here.layer + here.label.startswith("prev.") - there.layer
    return {0: name, 1: f"prev.{name}"}.get(passes)
