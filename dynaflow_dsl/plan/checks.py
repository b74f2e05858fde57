"""What can be wrong with a timeline once the data is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynaflow_dsl.bind.model import BEFORE
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.plan.clocks import Run
from dynaflow_dsl.plan.dependences import BEFORE_STEP, Need, Step, step_of
from dynaflow_dsl.plan.timeline import Event, Site

SAME_MEMORY = "touches the same memory, and one of the two writes it"


def issue_order(
    events: Sequence[Event], needs: Sequence[Sequence[Need]]
) -> list[Diagnostic]:
    """DFS301: a step is issued before what it reads. DFS302 where a window says so."""
    number: dict[Step, int] = {}
    for n, event in enumerate(events):
        number.setdefault(step_of(event), n)
    found: dict[tuple[int, int], Diagnostic] = {}
    for n, event in enumerate(events):
        for need in needs[n]:
            maker = number.get(need.step)
            if need.step == BEFORE_STEP or (maker is not None and maker < n):
                continue
            if maker is None:
                continue
            site, made_at = event.site, events[maker].site
            key = (site.span.start, made_at.span.start)
            if key in found:
                continue
            if _same_window(site, made_at):
                found[key] = cannot_overlap(site, made_at, need.variable)
            else:
                found[key] = _issued_before(site, made_at, need)
    return list(found.values())


def _same_window(left: Site, right: Site) -> bool:
    return (
        left.section == right.section
        and left.window == right.window
        and left.run != right.run
    )


def _issued_before(site: Site, made_at: Site, need: Need) -> Diagnostic:
    variable = need.variable
    help_ = f"put {site.label} after {made_at.label}"
    if not site.previous:
        help_ += f", or write prev.{site.label} to run it one iteration later"
    return Diagnostic(
        "DFS301",
        f"{site.label} is issued before {made_at.label}, which it " + _reads(variable),
        Label(site.span, f"reads {variable}" if variable else SAME_MEMORY),
        (Label(made_at.span, "produced only here" if variable else "runs first"),),
        helps=(help_,),
    )


def cannot_overlap(reader: Site, maker: Site, variable: str) -> Diagnostic:
    """DFS302, when one step of a window reads the other."""
    help_ = f"put {reader.label} into a later window"
    if not reader.previous:
        help_ += ", or 'prev.' before it"
    made = f"produces what {reader.label} reads"
    return Diagnostic(
        "DFS302",
        f"{reader.label} cannot overlap {maker.label}: it {_reads(variable)} it",
        Label(reader.span, f"reads {variable}" if variable else SAME_MEMORY),
        (Label(maker.span, made if variable else "runs first"),),
        helps=(help_,),
    )


def _reads(variable: str) -> str:
    return "reads" if variable else "must follow"


def overwritten(
    events: Sequence[Event],
    needs: Sequence[Sequence[Need]],
    writes: Sequence[Sequence[str]],
) -> list[Diagnostic]:
    """DFS308: the next iteration's result would replace one that is yet to be read."""
    holder: dict[str, int] = {}
    number: dict[Step, int] = {}
    found: dict[tuple[int, int], Diagnostic] = {}
    for n, event in enumerate(events):
        for need in needs[n]:
            maker = number.get(need.step)
            current = holder.get(need.variable)
            if maker is None or current is None or current == maker:
                continue
            site, thief = event.site, events[current].site
            if site.section == "after" or thief.part == BEFORE:
                continue
            found.setdefault(
                (site.span.start, thief.span.start),
                Diagnostic(
                    "DFS308",
                    f"{thief.label} replaces {need.variable} before {site.label} "
                    "has read it",
                    Label(site.span, "reads the result of the iteration before"),
                    (Label(thief.span, "makes the next one"),),
                    helps=(f"issue {site.label} before {thief.label}",),
                ),
            )
        number.setdefault(step_of(event), n)
        for name in writes[n]:
            holder[name] = n
    return list(found.values())


def overlap_claims(run: Run, needs: Sequence[Sequence[Need]]) -> Iterator[Diagnostic]:
    """DFS302: every `|` must leave its steps unordered, in every iteration."""
    seen: set[tuple[int, int]] = set()
    for earlier, later in claimed_pairs(run.events):
        left, right = run.events[earlier].site, run.events[later].site
        key = (left.span.start, right.span.start)
        if key in seen or not run.happens_before(earlier, later):
            continue
        seen.add(key)
        direct = next(
            (n for n in needs[later] if run.number.get(n.step) == earlier), None
        )
        if direct is not None:
            yield cannot_overlap(right, left, direct.variable)
        else:
            yield _ordered_by_waits(right, left)


def claimed_pairs(events: Sequence[Event]) -> Iterator[tuple[int, int]]:
    """Pairs of events that a window claims to be concurrent, earlier issue first."""
    window: list[int] = []
    for n, event in enumerate(events):
        first = events[window[0]].site if window else None
        site = event.site
        here = (site.section, site.window)
        # A loop of one window starts over with the site it began with.
        if first is None or here != (first.section, first.window) or site == first:
            window = []
        for other in window:
            if events[other].site.run != site.run:
                yield other, n
        window.append(n)


def _ordered_by_waits(later: Site, earlier: Site) -> Diagnostic:
    return Diagnostic(
        "DFS302",
        f"{later.label} cannot overlap {earlier.label}: a chain of waits orders them",
        Label(later.span, f"must wait for {earlier.label}, through other steps"),
        (Label(earlier.span, "runs first"),),
        helps=(
            f"put {later.label} into a later window",
            "steps of one stream run in the order of the text: see dfsc show --windows",
        ),
    )
