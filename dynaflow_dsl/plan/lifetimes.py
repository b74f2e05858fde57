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

from dynaflow_dsl.bind.model import AFTER
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

    `views` are names that hold slices of other storages until they are given away.
    """

    writes: tuple[tuple[str, ...], ...]
    reads: tuple[tuple[str, ...], ...]
    views: frozenset[str]


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
    settled: set[Tensor] = set()
    everything = tensors(uses)
    made_by: dict[tuple[Site, str], list[Tensor]] = defaultdict(list)
    ended_by: dict[tuple[str, int], Tensor] = {}
    for tensor in everything:
        made_by[(run.events[tensor.made].site, tensor.variable)].append(tensor)
        if tensor.ends is not None:
            ended_by[(tensor.variable, tensor.ends)] = tensor
    loops = {
        sites[0].segment: Body(sites, passes) for sites, passes in _loops(run.events)
    }
    for (site, name), group in made_by.items():
        if site.in_loop:
            body = loops[site.segment]
            # The name goes to another tensor where another site of the loop, or the
            # same one in the next pass, makes it anew.
            ender = run.events[_event(group[0].ends)].site
            before = ended_by.get((name, body.passes[0][ender]))
            comes_in = before is not None and before not in group
            # One that an earlier loop has dropped does not come in.
            entering = [before] if before and comes_in and before not in settled else []
            bound = bool(entering) or (before is None and name in uses.views)
            chain = Chain(site, ender, entering, group, bound)
            settled |= _place_in_loop(chain, run, body, frees)
    for tensor in everything:
        if tensor not in settled and tensor.variable not in outer:
            _place_outside(tensor, run, frees)
    return frees


@dataclass(frozen=True, slots=True)
class Body:
    """The sites of a loop, and for each pass the event of each site."""

    sites: list[Site]
    passes: list[dict[Site, int]]


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


def _loops(
    events: Sequence[Event],
) -> Iterator[tuple[list[Site], list[dict[Site, int]]]]:
    """The sites of each loop, and for each of its passes their events."""
    passes: list[dict[Site, int]] = []
    for n, event in enumerate(events):
        site = event.site
        if not site.in_loop:
            continue
        first = next(iter(passes[0])) if passes else None
        if first is not None and first.segment != site.segment:
            yield list(passes[0]), passes
            passes, first = [], None
        if first is None or site is first:
            passes.append({})
        passes[-1][site] = n
    if passes:
        yield list(passes[0]), passes


@dataclass(frozen=True, slots=True)
class Chain:
    """The tensors that bear a name one after another, made by one site of a loop.

    `ender` is the site that gives the name away, `entering` the tensor that has it when
    the loop starts, if any. `bound` tells whether the name has a value then.
    """

    site: Site
    ender: Site
    entering: list[Tensor]
    made: list[Tensor]
    bound: bool

    @property
    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [*self.entering, *self.made]


def _place_in_loop(chain: Chain, run: Run, body: Body, frees: Frees) -> set[Tensor]:
    """One place in the loop that is safe in every pass; what it takes care of."""
    name = chain.made[0].variable
    for place, wrapped in _candidates(body.sites.index(chain.site), body.sites):
        if wrapped and not chain.bound:
            # In the first pass there would be nothing to drop.
            continue
        pairs = list(zip(chain.made, body.passes[wrapped:], strict=False))
        if wrapped:
            pairs += [(tensor, body.passes[0]) for tensor in chain.entering]
        if pairs and all(
            _has_its_name(tensor, at[place.site], place.when)
            and safe(tensor, run, at[place.site], place.when)
            for tensor, at in pairs
        ):
            frees.at[place].append(name)
            return {tensor for tensor, _ in pairs}
    return _rebound(chain, run, frees)


def _has_its_name(tensor: Tensor, n: int, when: str) -> bool:
    """Whether no other tensor has taken the name by then."""
    return (
        tensor.ends is None or n < tensor.ends or (n == tensor.ends and when == "ready")
    )


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


def _rebound(chain: Chain, run: Run, frees: Frees) -> set[Tensor]:
    """The name's next tensor ends each one: safe as it is, or held until the join."""
    replaced = [
        t
        for t in chain.tensors
        if t.ends is not None and run.events[t.ends].site is chain.ender
    ]
    unsafe = [t for t in replaced if not safe(t, run, _event(t.ends), "done")]
    for made_at in dict.fromkeys(run.events[t.made].site for t in unsafe):
        frees.held[Place(made_at, "done")].append(chain.made[0].variable)
    held = {run.events[t.made].site for t in unsafe}
    return {
        t for t in chain.tensors if t in replaced or run.events[t.made].site in held
    }


def _event(number: int | None) -> int:
    assert number is not None
    return number


def _place_outside(tensor: Tensor, run: Run, frees: Frees) -> None:
    """The first safe place outside the loop and before `after` runs, if any."""
    stop = len(run.events) - 1 if tensor.ends is None else tensor.ends
    for n in range(max((tensor.made, *tensor.readers)), stop + 1):
        site = run.events[n].site
        if site.in_loop or (site.part == AFTER and not site.merge):
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
