"""Changes as text, as Markdown for a comment, or as data."""

from __future__ import annotations

from itertools import groupby

from dynaflow_dsl.comparison.model import Change, Comparison, Effect
from dynaflow_dsl.source import Span

_NO_EFFECT = "no change of meaning"


def as_text(comparison: Comparison) -> str:
    """A headline, then one line for each change below the declaration it is in."""
    lines = [f"{_files(comparison)}: {headline(comparison)}"]
    for where, changes in groupby(comparison.changes, lambda change: change.where):
        margin = "  "
        if where:
            lines.append(f"  {where}")
            margin = "    "
        lines += [f"{margin}{_plain(change, comparison)}" for change in changes]
    if comparison.effects:
        lines.append(f"  what follows, by {comparison.snapshot}")
        said = [_said(each).replace("`", "'") for each in comparison.effects]
        lines += [f"    {sentence}" for sentence in said]
    return "\n".join(lines)


def as_markdown(comparison: Comparison) -> str:
    """A heading and a list, for a comment on a pull request."""
    name = comparison.new or comparison.old
    lines = [f"#### `{name}`", "", f"{_capital(headline(comparison))}."]
    for where, changes in groupby(comparison.changes, lambda change: change.where):
        lines += ["", f"**{where or 'the file'}**", ""]
        lines += [f"- {change.sentence}" for change in changes]
    if comparison.effects:
        lines += ["", f"**what follows**, by `{comparison.snapshot}`", ""]
        lines += [f"- {_said(each)}" for each in comparison.effects]
    return "\n".join(lines)


def as_data(comparison: Comparison) -> dict[str, object]:
    """For programs: lines are counted from one, and null where a file has none."""
    return {
        "old": comparison.old,
        "new": comparison.new,
        "identical": comparison.identical,
        "same_meaning": comparison.same_meaning,
        "changes": [
            {
                "kind": change.kind,
                "where": change.where,
                "sentence": change.sentence,
                "old": _position(change.before),
                "new": _position(change.after),
            }
            for change in comparison.changes
        ],
        "snapshot": comparison.snapshot,
        "effects": [
            {"where": each.where, "sentence": each.sentence}
            for each in comparison.effects
        ],
    }


def _said(effect: Effect) -> str:
    return f"{effect.where}: {effect.sentence}" if effect.where else effect.sentence


def headline(comparison: Comparison) -> str:
    """How much changed, in a few words."""
    if comparison.old is None:
        return "a new file"
    if comparison.new is None:
        return "the file was removed"
    if comparison.identical and not comparison.changes:
        return "no change"
    if not comparison.changes:
        return f"{_NO_EFFECT}, only layout or comments"
    if comparison.same_meaning:
        return f"{_NO_EFFECT}, written otherwise"
    number = len(comparison.changes)
    return f"{number} change{'s' if number > 1 else ''}"


def _files(comparison: Comparison) -> str:
    if comparison.old is None or comparison.new is None:
        return comparison.new or comparison.old or ""
    if comparison.old == comparison.new:
        return comparison.new
    return f"{comparison.old} -> {comparison.new}"


def _plain(change: Change, comparison: Comparison) -> str:
    """A sentence after its place in the new file, else in the old one."""
    span = change.after or change.before
    sentence = change.sentence.replace("`", "'")
    if span is None:
        return sentence
    line = f"line {span.line}" if change.after else f"old line {span.line}"
    if span.source.name not in (comparison.old, comparison.new):
        # It stands in a file that this one imports.
        line = f"{span.source.name}, {line}"
    return f"{line}: {sentence}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _position(span: Span | None) -> dict[str, object] | None:
    if span is None:
        return None
    return {"file": span.source.name, "line": span.line, "column": span.column}
