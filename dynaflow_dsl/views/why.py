"""Why a step waits: everything that it needs, and which wait or stream gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import groupby

from dynaflow_dsl.bind.model import AFTER, BEFORE
from dynaflow_dsl.plan.model import Plan, Wait
from dynaflow_dsl.prove.execute import Execution
from dynaflow_dsl.prove.machine import Clock, Machine, Owner
from dynaflow_dsl.prove.memory import Access, Content
from dynaflow_dsl.source import Span


@dataclass(frozen=True, slots=True)
class Needed:
    """Another step that has to be done, for a reason: `reads attn_0`."""

    step: Access
    reason: str


@dataclass(frozen=True, slots=True)
class Awaited:
    """A wait, the step that its event stands for, and what needs it.

    `needs` are met by this wait and by nothing before it; without any, the wait stands
    for other layers.
    """

    event: str
    step: Access | None
    needs: tuple[Needed, ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """One run of a step: what it waits for, and what it needs no wait for."""

    step: Access
    waits: tuple[Awaited, ...]
    met: tuple[Needed, ...]


@dataclass(slots=True)
class _Run:
    access: Access
    before: Clock
    waits: list[tuple[str, Access | None, Clock]]
    needs: list[Needed] = field(default_factory=list)


class _Noting(Machine):
    """The machine of the proof, which keeps what each step needed and waited for."""

    def __init__(self, streams: tuple[str, ...]) -> None:
        super().__init__(streams)
        self.runs: dict[Access, _Run] = {}
        self._waiting: dict[str, list[tuple[str, Access | None, Clock]]] = {}
        self._known: dict[str, Clock] = {}

    def wait(self, stream: str, event: str, span: Span | None) -> None:
        self._known.setdefault(stream, dict(self.clocks[stream]))
        super().wait(stream, event, span)
        clock, step = self.events.get(event, ({}, None))
        self._waiting.setdefault(stream, []).append((event, step, clock))

    def issue(
        self, stream: str, label: str, span: Span | None, layer: int | None = None
    ) -> Access:
        before = self._known.pop(stream, None) or dict(self.clocks[stream])
        access = super().issue(stream, label, span, layer)
        self.runs[access] = _Run(access, before, self._waiting.pop(stream, []))
        return access

    def read(self, content: Content, access: Access, variable: str) -> None:
        if not content.storage.from_outside:
            for made in content.storage.makers(content.piece):
                needed = Needed(made, f"reads {variable}")
                self.runs[access].needs.append(needed)
        super().read(content, access, variable)

    def write(self, where: Content, access: Access, made: Content, name: str) -> None:
        needed = Needed(where.storage.made, f"writes its rows of {name}")
        self.runs[access].needs.append(needed)
        super().write(where, access, made, name)

    def touch(
        self,
        name: str,
        place: int,
        access: Access,
        owner: Owner,
        expected: Owner | None,
        *,
        writes: bool,
    ) -> None:
        for other in self.conflicts(name, place, writes=writes):
            word = "writes" if writes else "reads"
            reason = f"{word} {name}, which {other.label} touches"
            self.runs[access].needs.append(Needed(other, reason))
        super().touch(name, place, access, owner, expected, writes=writes)


def explain(plan: Plan, label: str) -> list[Explained]:
    """All runs of a step, called as the schedule calls it: `attn[0]`, or `attn` for
    all of its pieces; empty where there is none."""
    machine = _Noting(plan.streams)
    pieces = plan.binding.schedule.pieces
    Execution(plan.binding, plan.streams, pieces, plan.buffers, machine).run(plan.step)
    said = _said(plan)
    return [
        _explained(run, said)
        for run in machine.runs.values()
        if _is_called(run.access, label)
    ]


def labels(plan: Plan) -> list[str]:
    """What steps are called, in the order in which they are first issued."""
    machine = _Noting(plan.streams)
    pieces = plan.binding.schedule.pieces
    Execution(plan.binding, plan.streams, pieces, plan.buffers, machine).run(plan.step)
    return list(dict.fromkeys(_plain(each.label) for each in machine.accesses.values()))


def nearest(plan: Plan, label: str) -> list[str]:
    """At most five steps that may have been meant."""
    known = labels(plan)
    near = get_close_matches(label, known, n=5, cutoff=0.5)
    return near or known[:5]


def _plain(label: str) -> str:
    return label.removeprefix("prev.")


def _is_called(access: Access, label: str) -> bool:
    mine, wanted = _plain(access.label), _plain(label)
    return mine == wanted or mine.partition("[")[0] == wanted


def _said(plan: Plan) -> Mapping[tuple[str, str], str]:
    """What the schedule says where a step comes after another by its word alone."""
    return {
        (_plain(statement.label), statement.event): statement.after
        for block in plan.step.blocks
        for statement in block.statements
        if isinstance(statement, Wait) and statement.after
    }


def _explained(run: _Run, said: Mapping[tuple[str, str], str]) -> Explained:
    left = list(run.needs)
    known = dict(run.before)
    met = [need for need in left if known[need.step.stream] >= need.step.time]
    left = [need for need in left if need not in met]
    waits: list[Awaited] = []
    for event, step, clock in run.waits:
        mine = [n for n in left if clock.get(n.step.stream, 0) >= n.step.time]
        left = [need for need in left if need not in mine]
        after = said.get((_plain(run.access.label), event))
        if after and step is not None:
            mine.append(Needed(step, f"comes after {after}, as the schedule says"))
        waits.append(Awaited(event, step, tuple(mine)))
    return Explained(run.access, tuple(waits), tuple(met))


def why_text(plan: Plan, runs: Sequence[Explained]) -> str:
    """The explanation in words; runs that differ in nothing but the layer are one.

    The text ends without a newline.
    """
    paragraphs = []
    groups = groupby(runs, key=lambda run: (run.step.label, tuple(_lines(run))))
    merged: dict[tuple[str, tuple[str, ...]], list[Explained]] = {}
    for key, found in groups:
        merged.setdefault(key, []).extend(found)
    for (label, lines), group in merged.items():
        step = group[0].step
        layers = [run.step.layer for run in group if run.step.layer is not None]
        if step.label in (BEFORE, AFTER):
            layers = []
        where = f", {_layers(layers)}" if layers else ""
        head = f"{label} on {step.stream}{where} · {_place(step)}"
        paragraphs.append("\n".join([head, *lines]))
    return "\n\n".join(paragraphs)


def why_data(runs: Sequence[Explained]) -> list[dict[str, object]]:
    """The same for `--output-format json`, run by run."""
    return [
        {
            "step": run.step.label,
            "stream": run.step.stream,
            "layer": run.step.layer,
            "place": _place(run.step),
            "waits": [
                {
                    "event": wait.event,
                    "step": wait.step.label if wait.step else None,
                    "stream": wait.step.stream if wait.step else None,
                    "place": _place(wait.step) if wait.step else None,
                    "reasons": [need.reason for need in wait.needs],
                }
                for wait in run.waits
            ],
            "known": [
                {"step": need.step.label, "reason": need.reason} for need in run.met
            ],
        }
        for run in runs
    ]


def _lines(run: Explained) -> Iterator[str]:
    step = run.step
    for wait in run.waits:
        if wait.step is None:
            yield f"  waits for {wait.event}, the start of the step"
            continue
        awaited = wait.step
        yield f"  waits for {_called(awaited)} on {awaited.stream} · {_place(awaited)}"
        by_step: dict[Access, list[str]] = {}
        for need in wait.needs:
            by_step.setdefault(need.step, []).append(need.reason)
        for other, reasons in by_step.items():
            through = "" if other is awaited else f", of {_called(other)} before it"
            yield f"    {_listed(reasons)}{through}"
        if not wait.needs:
            yield "    for the step in other layers, where this wait stands as well"
    known: dict[tuple[str, str], list[str]] = {}
    for need in run.met:
        key = (_called(need.step), need.step.stream)
        known.setdefault(key, []).append(need.reason)
    for (label, stream), reasons in known.items():
        if stream == step.stream:
            why = f"{label} is above it on {stream}"
        else:
            why = f"{step.stream} has waited for {label} earlier"
        yield f"  {_listed(reasons)} without a wait: {why}"
    if not run.waits and not run.met:
        yield "  waits for nothing: it reads what the step was given"


def _called(step: Access) -> str:
    """A step in words; what surrounds the parts is no word of the file."""
    if step.label in (BEFORE, AFTER):
        return f"what runs {step.label} the parts"
    return step.label


def _listed(reasons: Sequence[str]) -> str:
    """`reads a, b` for `reads a` and `reads b`; other reasons as they are."""
    plain = [r.removeprefix("reads ") for r in reasons if r.count(" ") == 1]
    others = [reason for reason in reasons if reason.count(" ") > 1]
    read = [f"reads {', '.join(dict.fromkeys(plain))}"] if plain else []
    return "; ".join([*read, *dict.fromkeys(others)])


def _layers(layers: Sequence[int]) -> str:
    if not layers:
        return ""
    first, last = min(layers), max(layers)
    if first == last:
        return f"layer {first}"
    if len(set(layers)) == last - first + 1:
        return f"layers {first} to {last}"
    return f"layers {', '.join(map(str, layers))}"


def _place(step: Access) -> str:
    return str(step.span) if step.span is not None else "outside the schedule"
