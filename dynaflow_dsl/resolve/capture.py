"""`capture` lines: which sizes a step is captured at."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import given_twice
from dynaflow_dsl.resolve.values import (
    Scope,
    evaluate,
    evaluate_whole,
    options_by_name,
    written,
    wrong_value,
)
from dynaflow_dsl.source import Span
from dynaflow_dsl.syntax import model as syntax

# Captured sizes of one line: every one of them is a graph that takes memory.
MAX_SIZES = 256


def resolve_captures(
    lines: Sequence[syntax.Capture],
    scope: Scope,
    found: list[Diagnostic],
    phases: Collection[str] = (),
) -> tuple[model.Capture, ...]:
    """The `capture` lines of a schedule, one for each dimension.

    A dimension that is cut by phase has one for each of its `phases`.

    Options belong to the whole step, so a value that stands on one line holds for all,
    and two lines may not say different things.
    """
    by_dimension: dict[str, model.Capture] = {}
    options: dict[str, tuple[bool, Span]] = {}
    for line in lines:
        name = line.dimension.text
        if name in by_dimension:
            what = f"'capture {name}'"
            found.append(given_twice(what, line.span, by_dimension[name].span))
            continue
        for option, (value, span) in _options(line, scope, found).items():
            before = options.setdefault(option, (value, span))
            if before[0] != value:
                found.append(_options_differ(option, span, before[1]))
        least = 0 if name in phases else 1
        sizes = _sizes(line.sizes, scope, found, least)
        by_dimension[name] = model.Capture(name, sizes, line.dimension.span, line.span)
    static, pieces = (options.get(name, (False,))[0] for name in ("static", "pieces"))
    return tuple(
        model.Capture(
            each.dimension, each.sizes, each.name_span, each.span, static, pieces
        )
        for each in by_dimension.values()
    )


def _options(
    line: syntax.Capture, scope: Scope, found: list[Diagnostic]
) -> dict[str, tuple[bool, Span]]:
    taken: dict[str, tuple[bool, Span]] = {}
    known = ["static", "pieces"]
    named = options_by_name(line.options, "capture", known, found)
    for name, argument in named.items():
        value = evaluate(argument.value, found, scope)
        if isinstance(value, bool):
            taken[name] = value, argument.span
        elif value is not None:
            found.append(wrong_value("true or false", value, argument.value.span))
    return taken


def _sizes(
    listed: syntax.ListOf, scope: Scope, found: list[Diagnostic], least: int
) -> tuple[int, ...]:
    """The sizes that are right; the others are in `found`. A phase may have no row."""
    sizes: list[tuple[int, Span]] = []
    for item in listed.items:
        value = evaluate_whole(item, found, scope)
        if value is None:
            continue
        if value < least:
            text = f"this is {written(value)}"
            message = "a step is captured at one row or more"
            found.append(Diagnostic("DFS313", message, Label(item.span, text)))
        else:
            sizes.append((value, item.span))
    for (before, first), (after, second) in pairwise(sizes):
        if after == before:
            found.append(given_twice(f"size {after}", second, first))
        elif after < before:
            ascending = ", ".join(map(str, sorted({size for size, _ in sizes})))
            found.append(
                Diagnostic(
                    "DFS313",
                    "captured sizes are listed from small to large",
                    Label(second, f"{after} is smaller"),
                    (Label(first, f"than the {before} before it"),),
                    helps=(f"write [{ascending}]",),
                )
            )
            break
    if len(sizes) > MAX_SIZES:
        message = f"at most {MAX_SIZES} sizes are captured"
        text = f"these are {len(sizes)}"
        found.append(Diagnostic("DFS313", message, Label(listed.span, text)))
    return tuple(size for size, _ in sizes)


def _options_differ(option: str, again: Span, first: Span) -> Diagnostic:
    return Diagnostic(
        "DFS313",
        f"the option '{option}' is one for all 'capture' lines of a schedule",
        Label(again, "another value"),
        (Label(first, "first given here"),),
        helps=("give it on one line",),
    )
