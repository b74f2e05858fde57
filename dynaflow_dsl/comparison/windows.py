"""Changes of a timeline: windows that moved, steps that went from one to another.

A step stands for itself wherever it is, so that cutting a window in two, or taking a
step into the next one, is one change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from dynaflow_dsl.comparison.model import Change, Window


@dataclass(frozen=True, slots=True)
class Pair:
    """A window before and after, with their places; None where there is no such one."""

    before: Window | None
    after: Window | None
    old_place: int
    new_place: int


def window_changes(
    before: Sequence[Window], after: Sequence[Window], where: str, word: str
) -> Iterator[Change]:
    """The changes from one list of windows to another.

    `word` is what a line is called: a window or a stage.
    """
    left, right = _unmatched(before, after)
    yield from _reordered(before, after, where, word)
    for old in list(left):
        # The same window at another place.
        new = next((n for n in right if after[n].key == before[old].key), None)
        if new is not None:
            left.remove(old)
            right.remove(new)
            yield Change(
                "moved",
                where,
                f"{word} `{after[new].text}` moved from place {old + 1} to {new + 1}",
                before[old].span,
                after[new].span,
            )
    pairs = _pairs(before, after, left, right)
    moved = _moved_steps(pairs)
    for step, source, target in moved:
        yield _moved(step, source, target, where, word)
    for pair in pairs:
        rest = _without(pair, moved)
        if rest is not None:
            yield _changed(rest, pair, after, where, word)


def _unmatched(
    before: Sequence[Window], after: Sequence[Window]
) -> tuple[list[int], list[int]]:
    """The places of windows that do not stand as they were, in order."""
    left, right = set(range(len(before))), set(range(len(after)))
    for old, new in _matched(before, after):
        left.discard(old)
        right.discard(new)
    return sorted(left), sorted(right)


def _reordered(
    before: Sequence[Window], after: Sequence[Window], where: str, word: str
) -> Iterator[Change]:
    """Windows that stand as they were, but issue their runs in another order."""
    for one, new in _matched(before, after):
        old, now = before[one], after[new]
        if old.runs != now.runs:
            sentence = f"{word} {new + 1} is issued as `{now.text}` now"
            sentence += f", was `{old.text}`"
            yield Change("changed", where, sentence, old.span, now.span)


def _matched(
    before: Sequence[Window], after: Sequence[Window]
) -> Iterator[tuple[int, int]]:
    matcher = SequenceMatcher(
        None, [w.key for w in before], [w.key for w in after], autojunk=False
    )
    for block in matcher.get_matching_blocks():
        for k in range(block.size):
            yield block.a + k, block.b + k


def _pairs(
    before: Sequence[Window],
    after: Sequence[Window],
    left: Sequence[int],
    right: Sequence[int],
) -> list[Pair]:
    """Windows that became others: those that share most steps, the nearest first."""
    free = list(right)
    pairs = []
    for old in left:
        shared = {new: _shared(before[old], after[new]) for new in free}
        best = max(shared, key=lambda new: (shared[new], -abs(new - old)), default=None)
        if best is not None and (shared[best] or best == old):
            free.remove(best)
            pairs.append(Pair(before[old], after[best], old, best))
        else:
            pairs.append(Pair(before[old], None, old, old))
    pairs += [Pair(None, after[new], new, new) for new in free]
    return sorted(pairs, key=lambda pair: (pair.new_place, pair.old_place))


def _shared(one: Window, other: Window) -> int:
    return (Counter(one.steps) & Counter(other.steps)).total()


def _moved_steps(pairs: Sequence[Pair]) -> list[tuple[str, Pair, Pair]]:
    """Steps that one window lost and another one got."""
    lost = [(step, pair) for pair in pairs for step in _difference(pair, old=True)]
    moved = []
    for target in pairs:
        for step in _difference(target, old=False):
            source = next((pair for each, pair in lost if each == step), None)
            if source is not None:
                lost.remove((step, source))
                moved.append((step, source, target))
    return moved


def _difference(pair: Pair, *, old: bool) -> list[str]:
    one = Counter(pair.before.steps if pair.before else ())
    other = Counter(pair.after.steps if pair.after else ())
    return list((one - other if old else other - one).elements())


def _without(pair: Pair, moved: Sequence[tuple[str, Pair, Pair]]) -> Pair | None:
    """What is left to say of a pair; None when moved steps explain all of it."""
    gone = [step for step, source, _ in moved if source is pair]
    came = [step for step, _, target in moved if target is pair]
    before = _remove(pair.before, gone)
    after = _remove(pair.after, came)
    if (before.key if before else ()) == (after.key if after else ()):
        return None
    return replace(pair, before=before, after=after)


def _remove(window: Window | None, steps: Sequence[str]) -> Window | None:
    if window is None:
        return None
    rest = Counter(steps)
    runs = []
    for run in window.runs:
        kept = []
        for step in run:
            if rest[step]:
                rest[step] -= 1
            else:
                kept.append(step)
        runs.append(tuple(kept))
    runs = [run for run in runs if run]
    return replace(window, runs=tuple(runs)) if runs else None


def _moved(step: str, source: Pair, target: Pair, where: str, word: str) -> Change:
    assert source.before is not None
    assert target.after is not None
    origin = f"{word} {source.old_place + 1} (`{source.before.text}`)"
    others = [each for each in target.after.steps if each != step]
    place = f"{word} {target.new_place + 1}"
    if others:
        sentence = f"step `{step}` moved from {origin} to {place}"
        sentence += f", which is `{target.after.text}` now"
    else:
        sentence = f"step `{step}` moved from {origin} to a {word} of its own, {place}"
    return Change("moved", where, sentence, source.before.span, target.after.span)


def _changed(
    rest: Pair, pair: Pair, after: Sequence[Window], where: str, word: str
) -> Change:
    before, now = pair.before, pair.after
    if before is not None and now is not None:
        place = f"{word} {pair.new_place + 1}"
        sentence = f"{place} is `{now.text}` now, was `{before.text}`"
        return Change("changed", where, sentence, before.span, now.span)
    if rest.after is not None and now is not None:
        place = "at the top"
        if pair.new_place:
            place = f"below `{after[pair.new_place - 1].text}`"
        sentence = f"{word} `{now.text}` was added {place}"
        return Change("added", where, sentence, None, now.span)
    assert before is not None
    sentence = f"{word} `{before.text}` was removed from place {pair.old_place + 1}"
    return Change("removed", where, sentence, before.span)
