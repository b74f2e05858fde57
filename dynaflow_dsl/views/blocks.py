"""The blocks that a timeline becomes: first iteration, the others, what is left.

The text of an `each` describes the steady state. Iteration 0 leaves out its `prev`
steps, and after the last iteration the `prev` steps alone are left. What stands outside
an `each` runs once. Every view that draws time starts here, so that all of them agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from dynaflow_dsl.resolve.model import Run, Schedule, Section
from dynaflow_dsl.resolve.steps import step_text

Kind: TypeAlias = Literal["once", "first", "loop", "last"]

# The runs of one window that a block keeps.
Row: TypeAlias = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Windows that one stretch of the generated module holds."""

    kind: Kind
    rows: tuple[Row, ...]


def blocks(section: Section) -> tuple[Block, ...]:
    """First, loop and last block; the last one is left out when nothing is left."""
    kinds: tuple[Kind, ...] = ("first", "loop", "last")
    if section.each is None:
        kinds = ("once",)
    found = tuple(Block(kind, _rows(section, kind)) for kind in kinds)
    return tuple(block for block in found if block.rows)


def scope_text(section: Section) -> str:
    """For which modules a section runs, as the file says it."""
    if section.each is None:
        return "the whole model"
    having = section.each.having
    limit = f" having {having.span.text}" if having is not None else ""
    return f"each {section.each.name} in {section.each.path.span.text}{limit}"


def run_text(schedule: Schedule, run: Run) -> str:
    """The steps of a run in sequence: `attn, router`."""
    return ", ".join(step_text(step, schedule.piece_names) for step in run.steps)


def _rows(section: Section, kind: Kind) -> tuple[Row, ...]:
    kept = (_kept(window.runs, kind) for window in section.windows)
    return tuple(row for row in kept if row)


def _kept(runs: Row, kind: Kind) -> Row:
    match kind:
        case "loop" | "once":
            return runs
        case "first":
            previous = False
        case "last":
            previous = True
    thinned = (
        replace(run, steps=tuple(s for s in run.steps if s.previous is previous))
        for run in runs
    )
    return tuple(run for run in thinned if run.steps)
