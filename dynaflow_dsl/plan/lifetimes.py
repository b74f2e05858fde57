"""Where each tensor's last name goes.

The allocator gives memory back to the stream that made it as soon as the last name of
a storage is dropped, so that may only happen where that stream has waited, directly or
through other waits, for every reader on other streams. No wait is added for a free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dynaflow_dsl.plan.clocks import Run
from dynaflow_dsl.plan.timeline import Event, Site


class Place(NamedTuple):
    """`ready`: between a site's waits and its call. `done`: after the call."""

    site: Site
    when: Literal["ready", "done"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One storage of a run: who made it under which name, who reads it.

    `ends` is the event that gives the name to another tensor, if any.
    """

    variable: str
    made: int
    readers: tuple[int, ...]
    ends: int | None


@dataclass(slots=True)
class Frees:
    """Names to drop at each place, and names to keep until the join."""

    at: dict[Place, list[str]] = field(default_factory=lambda: defaultdict(list))
    held: dict[Place, list[str]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class Uses:
    """Per event: variables bound to new storage, and storages read, by name.

    `bound_before_loop` are names that have a value when the loop starts.
    """

    writes: tuple[tuple[str, ...], ...]
    reads: tuple[tuple[str, ...], ...]
    bound_before_loop: frozenset[str]


def tensors(uses: Uses) -> list[Tensor]:
    """All storages of a run, in order of creation."""
    current: dict[str, int] = {}
    made: list[tuple[str, int]] = []
    readers: list[list[int]] = []
    ends: list[int | None] = []
    for n, (writes, reads) in enumerate(zip(uses.writes, uses.reads, strict=True)):
        for name in reads:
            if name in current:
                readers[current[name]].append(n)
        for name in writes:
            if name in current:
                ends[current[name]] = n
            current[name] = len(made)
            made.append((name, n))
            readers.append([])
            ends.append(None)
    return [
        Tensor(name, n, tuple(readers[k]), ends[k]) for k, (name, n) in enumerate(made)
    ]


def place_frees(run: Run, uses: Uses, outer: frozenset[str]) -> Frees:
    """Choose the first safe place for the end of every storage.

    Names in `outer` are read by every layer and live to the end of the step.
    """
    frees = Frees()
    sites = list(dict.fromkeys(e.site for e in run.events if e.site.section == "loop"))
    passes = _passes(run.events, sites)
    settled: set[Tensor] = set()
    made_by: dict[tuple[Site, str], list[Tensor]] = defaultdict(list)
    everything = tensors(uses)
    for tensor in everything:
        made_by[(run.events[tensor.made].site, tensor.variable)].append(tensor)
    for (site, name), group in made_by.items():
        if site.section == "loop":
            entering = [
                t for t in everything if t.variable == name and t.ends == group[0].made
            ]
            settled |= _place_in_loop(
                site, name, [*entering, *group], run, uses, passes, sites, frees
            )
    for tensor in everything:
        if tensor not in settled and tensor.variable not in outer:
            _place_outside(tensor, run, frees)
    return frees


def safe(tensor: Tensor, run: Run, n: int, when: str) -> bool:
    """Whether the maker's stream knows every reader to be done at this place."""
    if n < tensor.made:
        return False
    clocks = run.ready[n] if when == "ready" else run.of_stream[n]
    clock = clocks[run.events[tensor.made].site.stream]
    for reader in tensor.readers:
        if reader > n or (reader == n and when == "ready"):
            return False
        place = run.streams.index(run.events[reader].site.stream)
        if clock[place] < run.time[reader]:
            return False
    return True


def _passes(events: Sequence[Event], sites: list[Site]) -> list[dict[Site, int]]:
    """For each pass of the loop, the event of each of its sites."""
    passes: list[dict[Site, int]] = []
    for n, event in enumerate(events):
        if event.site.section == "loop":
            if event.site == sites[0]:
                passes.append({})
            passes[-1][event.site] = n
    return passes


def _place_in_loop(
    site: Site,
    name: str,
    chain: list[Tensor],
    run: Run,
    uses: Uses,
    passes: list[dict[Site, int]],
    sites: list[Site],
    frees: Frees,
) -> set[Tensor]:
    """One place in the loop's body that is safe in every pass; what it takes care of.

    `chain` are the tensors that bear the name one after another: the one that enters
    the loop, if any, then one per pass.
    """
    entering = [t for t in chain if run.events[t.made].site != site]
    made_in_loop = [t for t in chain if run.events[t.made].site == site]
    for place, wrapped in _candidates(sites.index(site), sites):
        if wrapped and name not in uses.bound_before_loop:
            # In the first pass there would be nothing to drop.
            continue
        pairs = list(zip(made_in_loop, passes[wrapped:], strict=False))
        if wrapped:
            pairs += [(tensor, passes[0]) for tensor in entering]
        if pairs and all(
            safe(tensor, run, at[place.site], place.when) for tensor, at in pairs
        ):
            frees.at[place].append(name)
            return {tensor for tensor, _ in pairs}
    return _rebound(chain, site, run, frees)


def _candidates(start: int, sites: list[Site]) -> Iterator[tuple[Place, int]]:
    """Places after a site in the order in which they are reached, into the next pass,
    up to the site's own next call."""
    yield Place(sites[start], "done"), 0
    for site in sites[start + 1 :]:
        yield Place(site, "ready"), 0
        yield Place(site, "done"), 0
    for site in sites[:start]:
        yield Place(site, "ready"), 1
        yield Place(site, "done"), 1
    yield Place(sites[start], "ready"), 1


def _rebound(chain: list[Tensor], site: Site, run: Run, frees: Frees) -> set[Tensor]:
    """The name's next tensor ends each one: safe as it is, or held until the join."""
    replaced = [
        t for t in chain if t.ends is not None and run.events[t.ends].site == site
    ]
    unsafe = [t for t in replaced if not safe(t, run, _event(t.ends), "done")]
    for made_at in dict.fromkeys(run.events[t.made].site for t in unsafe):
        frees.held[Place(made_at, "done")].append(chain[0].variable)
    held = {run.events[t.made].site for t in unsafe}
    return {t for t in chain if t in replaced or run.events[t.made].site in held}


def _event(number: int | None) -> int:
    assert number is not None
    return number


def _place_outside(tensor: Tensor, run: Run, frees: Frees) -> None:
    """The first safe place outside the loop and before `after` runs, if any."""
    stop = len(run.events) - 1 if tensor.ends is None else tensor.ends
    for n in range(max((tensor.made, *tensor.readers)), stop + 1):
        site = run.events[n].site
        if site.section == "loop" or (site.section == "after" and not site.merge):
            continue
        if n < stop and safe(tensor, run, n, "done"):
            frees.at[Place(site, "done")].append(tensor.variable)
            return
        if n == stop and tensor.ends is not None and safe(tensor, run, n, "ready"):
            frees.at[Place(site, "ready")].append(tensor.variable)
            return
    if tensor.ends is not None and not safe(tensor, run, tensor.ends, "done"):
        made_at = run.events[tensor.made].site
        frees.held[Place(made_at, "done")].append(tensor.variable)
