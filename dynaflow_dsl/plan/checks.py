"""What can be wrong with a timeline once the data is known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from dynaflow_dsl.bind.model import AFTER, BEFORE, GAP
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.plan.clocks import Run, find_waits, numbered, simulate
from dynaflow_dsl.plan.dependences import Need, step_of
from dynaflow_dsl.plan.paths import chain, in_words
from dynaflow_dsl.plan.timeline import NO_RUN, Event, Site, claimed_pairs


def issue_order(
    events: Sequence[Event], needs: Sequence[Sequence[Need]], may_lag: Collection[str]
) -> list[Diagnostic]:
    """DFS301: a step is issued before what it reads. DFS302 where a window says so,
    DFS306 where it is the schedule that wants the other order.

    `may_lag` are the parts before whose steps `prev` may stand.
    """
    number = numbered(events)
    found: dict[tuple[int, int], Diagnostic] = {}
    for n, event in enumerate(events):
        for need in needs[n]:
            maker = number[need.step]
            if maker < n:
                continue
            site, made_at = event.site, events[maker].site
            key = (site.span.start, made_at.span.start)
            if key in found:
                continue
            if need.after:
                found[key] = _after_a_later_one(site, made_at)
            elif _same_window(site, made_at):
                found[key] = cannot_overlap(
                    site, made_at, need, may_lag=_may_lag(event, made_at, events, needs)
                )
            else:
                found[key] = _issued_before(
                    site,
                    made_at,
                    need,
                    may_lag=site.part in may_lag,
                    own=event.iteration == events[maker].iteration,
                )
    return list(found.values())


def _may_lag(
    reader: Event, maker: Site, events: Sequence[Event], needs: Sequence[Sequence[Need]]
) -> bool:
    """Whether the reader's step of the iteration before could stand beside its maker:
    there is one, and the other step needs nothing of it."""
    if reader.site.previous or maker.previous:
        return False
    number = numbered(events)
    i = max(reader.iteration, 1)
    lagging = number.get(step_of(Event(reader.site, i - 1)))
    beside = number.get(step_of(Event(maker, i)))
    if lagging is None or beside is None:
        return False
    reached, waiting = {beside}, [beside]
    while waiting:
        # There are as many buffers of weights as the windows need.
        wanted = (n for n in needs[waiting.pop()] if n.weights != "fills")
        found = {number[need.step] for need in wanted} - reached
        reached |= found
        waiting += found
    return lagging not in reached


def _same_window(left: Site, right: Site) -> bool:
    return (
        left.segment == right.segment
        and left.window == right.window
        and left.run != right.run
        and NO_RUN not in (left.run, right.run)
    )


def _issued_before(
    site: Site, made_at: Site, need: Need, *, may_lag: bool, own: bool
) -> Diagnostic:
    variable = need.variable
    help_ = f"put {site.label} below {made_at.label}"
    notes: tuple[str, ...] = ()
    if site.part == GAP:
        help_ = f"put this step below {made_at.label}"
        notes = (
            "gap is what lies between the iterations; it runs right before the first "
            "step that needs it",
        )
    elif may_lag and not site.previous:
        help_ += f", or write prev.{site.label} to run it one iteration later"
    touches, first = _why(need)
    if variable:
        touches, first = f"reads {variable}", "produced only here"
    helps: tuple[str, ...] = (help_,)
    needed = made_at.label.removeprefix("prev.")
    if made_at.previous and not site.previous and site.part != GAP:
        helps = (f"write {needed} for {made_at.label}", help_)
    if own and helps[1:]:
        # It may stand below, where that is a step of the iteration before.
        first = f"makes {needed} of the iteration before"
        notes = (f"{needed} of the same iteration runs as {made_at.label} in the next",)
        helps = (
            f"write {needed} for {made_at.label}, above {site.label}",
            f"write prev.{site.label}, below {made_at.label}",
        )
    return Diagnostic(
        "DFS301",
        f"{site.label} is issued before {made_at.label}, which it " + _reads(variable),
        Label(site.span, touches),
        (Label(made_at.span, first),),
        notes=notes,
        helps=helps,
    )


def _after_a_later_one(site: Site, made_at: Site) -> Diagnostic:
    if site is made_at:
        return Diagnostic(
            "DFS306",
            f"{site.label} cannot come after itself",
            Label(site.span, "comes after what it is"),
            helps=("name another step, or write 'prev.' before it",),
        )
    return Diagnostic(
        "DFS306",
        f"{site.label} comes after {made_at.label}, which is issued later",
        Label(site.span, f"waits for {made_at.label}"),
        (Label(made_at.span, "issued only here"),),
        helps=(
            f"put {site.label} below {made_at.label}, or leave out 'after'",
            f"write 'after prev.{made_at.label}' for the iteration before",
        )
        if not made_at.previous
        else (f"put {site.label} below {made_at.label}, or leave out 'after'",),
    )


def cannot_overlap(
    reader: Site, maker: Site, need: Need, *, may_lag: bool = False
) -> Diagnostic:
    """DFS302, when one step of a window reads the other or comes after it.

    `may_lag` says that the step of the iteration before could stand there.
    """
    variable = need.variable
    if need.after:
        return Diagnostic(
            "DFS302",
            f"{reader.label} cannot overlap {maker.label}: it comes after it",
            Label(reader.span, f"after {need.after}, as the schedule says"),
            (Label(maker.span, "claimed to run at the same time"),),
            helps=(f"put {reader.label} into a later window, or leave out 'after'",),
        )
    help_ = f"put {reader.label} into a later window"
    if may_lag:
        help_ += ", or 'prev.' before it"
    touches, first = _why(need)
    if variable:
        touches, first = f"reads {variable}", f"produces what {reader.label} reads"
    return Diagnostic(
        "DFS302",
        f"{reader.label} cannot overlap {maker.label}: it {_reads(variable)} it",
        Label(reader.span, touches),
        (Label(maker.span, first),),
        helps=(help_,),
    )


def _why(need: Need) -> tuple[str, str]:
    """What a step does that must follow another without reading what it made, and what
    that one does."""
    match need.weights:
        case "reads":
            return "reads its weights", "brings them only here"
        case "fills":
            return "fills the buffer that holds these weights", "reads them"
    return f"both touch {need.memory}, and one of the two writes it", "runs first"


def _reads(variable: str) -> str:
    return "reads" if variable else "must follow"


def overwritten(
    events: Sequence[Event],
    needs: Sequence[Sequence[Need]],
    writes: Sequence[Sequence[str]],
) -> list[Diagnostic]:
    """DFS308: the next iteration's result would replace one that is yet to be read."""
    holder: dict[str, int] = {}
    number = numbered(events)
    found: dict[tuple[int, int], Diagnostic] = {}
    for n, event in enumerate(events):
        for need in needs[n]:
            current = holder.get(need.variable)
            if current is None or current == number[need.step]:
                continue
            site, thief = event.site, events[current].site
            if site.part == AFTER or thief.part == BEFORE:
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
        for name in writes[n]:
            holder[name] = n
    return list(found.values())


def idle_orders(
    events: Sequence[Event],
    streams: tuple[str, ...],
    needs: Sequence[Sequence[Need]],
) -> Iterator[Diagnostic]:
    """DFS318: an `after` that data and streams imply wherever the step runs, or that
    names an iteration that there never is."""
    said: dict[tuple[int, int], list[int]] = {}
    for n, event in enumerate(events):
        if event.site.after:
            place = (event.site.span.start, event.site.span.end)
            said.setdefault(place, []).append(n)
    for everywhere in said.values():
        mine = [n for n in everywhere if any(need.after for need in needs[n])]
        if not mine:
            yield _after_nothing(events[everywhere[0]].site)
            continue
        # A step that stands for several pieces is one place of the file.
        rest = [
            [need for need in wanted if not (need.after and n in mine)]
            for n, wanted in enumerate(needs)
        ]
        run = simulate(events, streams, find_waits(events, streams, rest))
        if all(run.keeps(needs[n], n) for n in mine):
            yield _idle(events, mine[-1], run, needs)


def _idle(
    events: Sequence[Event], n: int, run: Run, needs: Sequence[Sequence[Need]]
) -> Diagnostic:
    """Which step implies the order: the first that knows of the other one."""
    site = events[n].site
    need = next(need for need in needs[n] if need.after)
    target = run.number[need.step]
    before = {run.number[o.step] for o in needs[n] if not o.after and o is not need}
    before |= {m for m in range(n) if events[m].site.stream == site.stream}
    known = (m for m in sorted(before) if m != target and run.happens_before(target, m))
    through = next(known, None)
    if target in before or through is None:
        why = f"it reads what {need.after} makes"
        if not any(run.number[o.step] == target and o.variable for o in needs[n]):
            same = events[target].site.stream == site.stream
            why = f"both run on {site.stream}" if same else "they touch the same memory"
            if not same and any(
                run.number[o.step] == target and o.weights for o in needs[n]
            ):
                why = "they touch the same weights"
    else:
        why = f"it follows {events[through].site.label}, which follows {need.after}"
    return Diagnostic(
        "DFS318",
        f"'after {need.after}' has no effect on {site.label}",
        Label(site.span, f"comes after {need.after} anyway: {why}"),
        helps=("leave it out: what the data and the streams say need not be written",),
    )


def _after_nothing(site: Site) -> Diagnostic:
    return Diagnostic(
        "DFS318",
        f"'after {site.after[0].label}' has no effect on {site.label}",
        Label(site.span, "comes after another iteration, and there is one alone"),
        helps=("leave it out, or compile for a model with more layers",),
    )


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
            yield cannot_overlap(
                right,
                left,
                direct,
                may_lag=_may_lag(run.events[later], left, run.events, needs),
            )
        else:
            links = chain(run, needs, earlier, later)
            way = in_words(run, links) if links else ""
            yield _ordered_by_waits(right, left, way)


def _ordered_by_waits(later: Site, earlier: Site, way: str) -> Diagnostic:
    return Diagnostic(
        "DFS302",
        f"{later.label} cannot overlap {earlier.label}: a chain of waits orders them",
        Label(later.span, f"must wait for {earlier.label}, through other steps"),
        (Label(earlier.span, "runs first"),),
        notes=(way,) if way else (),
        helps=(
            f"put {later.label} into a later window",
            "steps of one stream run in the order of the text: see dfsc show --windows",
        ),
    )
