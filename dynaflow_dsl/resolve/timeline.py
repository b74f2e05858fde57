"""Timelines written out: `order` and `stagger` to windows of runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import unknown_name
from dynaflow_dsl.resolve.steps import step_label, step_text
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax


@dataclass(frozen=True, slots=True)
class Timeline:
    """Expands the timeline of one section; findings go into `found`.

    `streams` holds, for each part, the stream of each piece; `split` is None in a
    schedule without one, whose steps carry no index. `repeats` tells whether there is
    an iteration before, `elsewhere` are the parts of other sections, and `once` those
    of this one that run once for all pieces however they are written.
    """

    streams: Mapping[str, Sequence[str]]
    split: model.Split | None
    repeats: bool
    elsewhere: Collection[str] = ()
    once: Collection[str] = ()
    found: list[Diagnostic] = field(default_factory=list)

    @property
    def piece_names(self) -> tuple[str, ...]:
        """What each microbatch is called."""
        return self.split.pieces if self.split else ("0",)

    @property
    def pieces(self) -> int:
        """Number of microbatches."""
        return len(self.piece_names)

    def order(self, order: syntax.Order) -> tuple[model.Window, ...]:
        """The windows of an `order`, whose steps stand as they are written."""
        windows = []
        references = (
            s.reference for w in order.windows for r in w.runs for s in r.steps
        )
        joined = {
            reference.name.text
            for reference in references
            if isinstance(reference.index, syntax.AllPieces)
        }
        if self.split is not None:
            joined |= set(self.once)
        for window in order.windows:
            runs = [run for each in window.runs for run in self._runs(each, joined)]
            self._check_streams(runs)
            windows.append(self._window(runs, window.span))
        return tuple(windows)

    def stagger(self, stagger: syntax.Stagger) -> tuple[model.Window, ...]:
        """The windows of a `stagger`.

        With n stages, each microbatch is `by` stages behind the one before: window k
        holds stage (k - by * i) mod n of microbatch i, of an earlier iteration where
        the subtraction goes below zero.
        """
        stages = [self._stage(window) for window in stagger.windows]
        steps = [stage for stage in stages if stage is not None]
        count = len(stages)
        by = int(stagger.by.value) if stagger.by else 1
        behind = by * (self.pieces - 1)
        if behind > count:
            self.found.append(_too_far(stagger, behind, count, self.split))
            return ()
        if len(steps) < count or not self._check_stages(steps):
            return ()
        steps = [
            replace(step, span=replace(step.span, used_at=stagger.span))
            for step in steps
        ]
        if self.repeats:
            return tuple(self._staggered(steps, by, k) for k in range(count))
        # The whole model runs once, so that the last pieces follow by themselves.
        return tuple(self._staggered(steps, by, k) for k in range(count + behind))

    def _staggered(
        self, steps: Sequence[syntax.Reference], by: int, k: int
    ) -> model.Window:
        """Window `k` of a stagger."""
        runs: dict[str, list[model.Step]] = {}
        for piece in range(self.pieces):
            iteration, position = divmod(k - by * piece, len(steps))
            if not self.repeats and iteration != 0:
                continue
            reference = steps[position]
            part = reference.name.text
            step = model.Step(part, piece, iteration < 0, reference.span)
            runs.setdefault(self.streams[part][piece], []).append(step)
        made = [model.Run(stream, tuple(run)) for stream, run in runs.items()]
        return self._window(made, steps[k % len(steps)].span)

    def step_text(self, step: model.Step) -> str:
        """A step as a user would write it, without what it comes after."""
        return step_label(step, self.piece_names)

    def _window(self, runs: Sequence[model.Run], span: Span) -> model.Window:
        texts = (
            ", ".join(step_text(step, self.piece_names) for step in run.steps)
            for run in runs
        )
        return model.Window(tuple(runs), " | ".join(texts), span)

    # ---- steps of an order -----------------------------------------------------------

    def _runs(self, run: syntax.Run, joined: Collection[str]) -> Iterator[model.Run]:
        """One run, or one for each stream when a step stands for pieces on several."""
        references = [step.reference for step in run.steps]
        expanded = [self._steps(step, joined) for step in run.steps]
        steps = [step for each in expanded for step in each]
        if not steps or not all(expanded):
            return
        whole = all(reference.index is None for reference in references)
        placements = {tuple(self.streams[step.part]) for step in steps}
        if whole and len(placements) == 1:
            for stream in dict.fromkeys(placements.pop()):
                taken = (s for s in steps if self._stream(s) == stream)
                yield model.Run(stream, tuple(taken))
            return
        first = steps[0]
        for step in steps[1:]:
            if self._stream(step) != self._stream(first):
                self.found.append(self._two_streams(first, step))
                return
        yield model.Run(self._stream(first), tuple(steps))

    def _stream(self, step: model.Step) -> str:
        return self.streams[step.part][step.piece or 0]

    def _steps(self, step: syntax.Step, joined: Collection[str]) -> list[model.Step]:
        """The steps that one step of the text stands for; none after an error.

        `joined` are the parts that run once for all pieces.
        """
        steps = self._pieces(step.reference)
        if step.after is None:
            return steps
        after = self._pieces(step.after)
        name = step.after.name.text
        if name in joined and step.after.index is None:
            after = [replace(one, piece=None) for one in after[:1]]
        for one in after:
            if one.piece is not None and name in joined:
                piece_name = self.piece_names[one.piece]
                self.found.append(_in_one(one.span, name, piece_name))
                return []
        if isinstance(step.after.index, syntax.AllPieces) and name not in joined:
            # All pieces have to be done, whether they run as one step or not.
            after = [
                replace(one, piece=piece)
                for one in after
                for piece in range(self.pieces)
            ]
        return [replace(one, after=tuple(after)) for one in steps] if after else []

    def _pieces(self, reference: syntax.Reference) -> list[model.Step]:
        """What a reference stands for; nothing after an error."""
        part = reference.name.text
        if part not in self.streams:
            self.found.append(unknown_part(reference, self.streams, self.elsewhere))
            return []
        if reference.previous and not self.repeats:
            self.found.append(_nothing_before(reference))
            return []
        pieces: list[int | None] = []
        once = part in self.once and self.split is not None
        if once and len(streams := dict.fromkeys(self.streams[part])) > 1:
            found = _on_several(part, reference.span, streams, always=True)
            self.found.append(found)
            return []
        match reference.index:
            case None if once:
                pieces.append(None)
            case syntax.Number(span=span) | syntax.Name(span=span) if once:
                self.found.append(_in_one(span, part, span.text))
                return []
            case None:
                pieces += range(self.pieces)
            case syntax.Number(value, span):
                if self.split is not None and self.split.phases:
                    self.found.append(self._no_phase(span.text, span, self.split))
                    return []
                if self.split is None or value >= self.pieces:
                    self.found.append(self._no_piece(part, span))
                    return []
                pieces.append(int(value))
            case syntax.Name(word, span):
                if self.split is None:
                    self.found.append(self._no_piece(part, span))
                    return []
                if not self.split.phases:
                    self.found.append(self._no_index(word, span))
                    return []
                if word not in self.split.pieces:
                    self.found.append(self._no_phase(word, span, self.split))
                    return []
                pieces.append(self.split.pieces.index(word))
            case syntax.AllPieces(span):
                if self.split is None:
                    self.found.append(self._no_piece(part, span))
                    return []
                if len(streams := dict.fromkeys(self.streams[part])) > 1:
                    self.found.append(
                        _on_several(part, reference.span, streams, always=False)
                    )
                    return []
                pieces.append(None)
        return [
            model.Step(part, piece, reference.previous, reference.span)
            for piece in pieces
        ]

    def _stage(self, window: syntax.Window) -> syntax.Reference | None:
        """The part that a line of a `stagger` names."""
        step = window.runs[0].steps[0]
        reference = step.reference
        alone = len(window.runs) == 1 and len(window.runs[0].steps) == 1
        plain = reference.index is None and not reference.previous
        if not (alone and plain and step.after is None):
            self.found.append(
                Diagnostic(
                    "DFS310",
                    "a line of 'stagger' is the name of one part",
                    Label(window.span, "this is more than that"),
                    helps=("write the windows yourself under 'order:'",),
                )
            )
            return None
        if reference.name.text in self.once:
            self.found.append(_runs_once(reference))
            return None
        # Looks the name up; every piece of a stage is placed later.
        return reference if self._pieces(reference) else None

    def _check_stages(self, stages: Sequence[syntax.Reference]) -> bool:
        """Whether no part is a stage twice."""
        seen: dict[str, syntax.Reference] = {}
        again = [
            stage
            for stage in stages
            if seen.setdefault(stage.name.text, stage) is not stage
        ]
        self.found.extend(
            Diagnostic(
                "DFS304",
                f"{stage.name.text} is in the timeline twice",
                Label(stage.span, "again here"),
                (Label(seen[stage.name.text].span, "first here"),),
            )
            for stage in again
        )
        return not again

    # ---- what can be wrong -----------------------------------------------------------

    def _check_streams(self, runs: Sequence[model.Run]) -> None:
        """Runs of one window need different streams."""
        seen: dict[str, model.Step] = {}
        for run in runs:
            step = run.steps[0]
            other = seen.setdefault(run.stream, step)
            if other is step:
                continue
            pair = f"{self.step_text(other)}, {self.step_text(step)}"
            way = f"write '{pair}' to run one after the other"
            same = (other.part, other.piece) == (step.part, step.piece)
            if same and other.previous == step.previous:
                way = "remove one of them: every part runs once for each piece"
            elif same:
                way = "keep one of them, with 'prev' or without"
            self.found.append(
                Diagnostic(
                    "DFS303",
                    f"these two cannot overlap: both run on {run.stream}",
                    Label(step.span, f"runs on {run.stream}"),
                    (Label(other.span, f"runs on {run.stream} too"),),
                    helps=(way,),
                )
            )

    def _two_streams(self, first: model.Step, step: model.Step) -> Diagnostic:
        if first.span == step.span:
            streams = " and ".join((self._stream(first), self._stream(step)))
            return Diagnostic(
                "DFS303",
                "the steps of one run are on different streams",
                Label(step.span, f"stands for all pieces, on {streams}"),
                helps=(f"write {step.part} on a line of its own, or with an index",),
            )
        names = self.piece_names
        pair = f"{step_text(first, names)} | {step_text(step, names)}"
        several = "'after' names one step; others stand in a line above"
        return Diagnostic(
            "DFS303",
            "the steps of one run are on different streams",
            Label(step.span, f"{self.step_text(step)} runs on {self._stream(step)}"),
            (
                Label(
                    first.span, f"{self.step_text(first)} runs on {self._stream(first)}"
                ),
            ),
            helps=(
                f"write '{pair}', or use two lines",
                *((several,) if first.after else ()),
            ),
        )

    def _no_piece(self, part: str, span: Span) -> Diagnostic:
        if self.split is None:
            return Diagnostic(
                "DFS305",
                f"{part} has no pieces: the schedule has no 'split'",
                Label(span, "no index can stand here"),
                helps=(f"write {part}, or add a 'split'",),
            )
        return Diagnostic(
            "DFS305",
            f"{part} has no piece {span.text}",
            Label(span, f"the last piece is {self.pieces - 1}"),
            (Label(self.split.span, f"cut into {self.pieces} pieces here"),),
            helps=(f"pieces are numbered from 0 to {self.pieces - 1}",),
        )

    def _no_index(self, word: str, span: Span) -> Diagnostic:
        helps = (f"pieces are numbered from 0 to {self.pieces - 1}",)
        return Diagnostic(
            "DFS305", f"'{word}' is no piece", Label(span, "here"), helps=helps
        )

    def _no_phase(self, word: str, span: Span, split: model.Split) -> Diagnostic:
        near = get_close_matches(word, split.pieces, n=1)
        listed = f"pieces go by the names of their phases: {', '.join(split.pieces)}"
        return Diagnostic(
            "DFS305",
            f"'{word}' is no piece",
            Label(span, "here"),
            (Label(split.span, "cut by phase here"),),
            helps=(f"did you mean '{near[0]}'?" if near else listed,),
        )


def references(
    timeline: syntax.Order | syntax.Stagger,
) -> Iterator[syntax.Reference]:
    """Everything that names a part in a timeline."""
    for window in timeline.windows:
        for run in window.runs:
            for step in run.steps:
                yield step.reference
                if step.after is not None:
                    yield step.after


def unknown_part(
    reference: syntax.Reference, parts: Iterable[str], elsewhere: Collection[str]
) -> Diagnostic:
    """For a name that is no part of the section."""
    name = reference.name
    if name.text in elsewhere:
        return _of_another_section(name)
    return unknown_name("part", name.text, name.span, parts)


def _of_another_section(name: syntax.Name) -> Diagnostic:
    return Diagnostic(
        "DFS102",
        f"there is no part '{name.text}' here",
        Label(name.span, "a part of another section"),
        helps=("name it in the timeline of its own section",),
    )


def _in_one(span: Span, name: str, piece: str) -> Diagnostic:
    return Diagnostic(
        "DFS305",
        f"{name} has no piece {piece}: it runs once for all pieces",
        Label(span, "no index can stand here"),
        helps=(f"write {name} or {name}[*]",),
    )


def _runs_once(reference: syntax.Reference) -> Diagnostic:
    return Diagnostic(
        "DFS310",
        "a stage runs for each piece",
        Label(reference.span, "brings weights, once for all pieces"),
        helps=("write the windows yourself under 'order:'",),
    )


def _on_several(
    part: str, span: Span, streams: Iterable[str], *, always: bool
) -> Diagnostic:
    return Diagnostic(
        "DFS303",
        f"{part}[*] runs once for all pieces, so it has one stream",
        Label(span, f"its pieces are on {' and '.join(streams)}"),
        helps=(
            f"declare 'part {part} on' one stream"
            + ("" if always else f", or write {part} without '[*]'"),
        ),
    )


def _nothing_before(reference: syntax.Reference) -> Diagnostic:
    return Diagnostic(
        "DFS114",
        "'prev' means nothing here",
        Label(reference.span, "parts outside 'each' run once"),
        helps=(f"write {reference.name.text}, in a window above or below",),
    )


def _too_far(
    stagger: syntax.Stagger, behind: int, count: int, split: model.Split | None
) -> Diagnostic:
    place = stagger.by.span if stagger.by else stagger.span
    secondary: tuple[Label, ...] = ()
    ways = "cut into fewer pieces, or add stages"
    if stagger.by is not None and int(stagger.by.value) > 1:
        ways = f"make 'by' smaller, {ways}"
    if split is not None:
        secondary = (Label(split.span, f"cut into {len(split.pieces)} pieces here"),)
    return Diagnostic(
        "DFS307",
        "this stagger goes further than one iteration",
        Label(place, f"the last piece is {behind} stages behind, of {count}"),
        secondary,
        helps=(ways,),
    )
