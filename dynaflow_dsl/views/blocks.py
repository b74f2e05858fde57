"""The three blocks a timeline becomes: first iteration, the others, what is left.

The text of an `each` describes the steady state. Iteration 0 leaves out its `prev`
steps, and after the last iteration the `prev` steps alone are left. Every view that
draws time starts here, so that all of them agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from dynaflow_dsl.resolve.model import Run, Schedule, Step

Kind: TypeAlias = Literal["first", "loop", "last"]

# The runs of one window that a block keeps.
Row: TypeAlias = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Windows that one stretch of the generated module holds."""

    kind: Kind
    rows: tuple[Row, ...]


def blocks(schedule: Schedule) -> tuple[Block, ...]:
    """First, loop and last block; the last one is left out when nothing is left."""
    found = tuple(Block(kind, _rows(schedule, kind)) for kind in _KINDS)
    return tuple(block for block in found if block.rows)


_KINDS: tuple[Kind, ...] = ("first", "loop", "last")


def step_text(schedule: Schedule, step: Step) -> str:
    """A step as a schedule file writes it: `prev.mlp[1]`."""
    anchor = "prev." if step.previous else ""
    return f"{anchor}{step.part}{piece_text(schedule, step)}"


def piece_text(schedule: Schedule, step: Step) -> str:
    """The index of a step, empty when nothing is split."""
    return f"[{step.piece}]" if schedule.split else ""


def run_text(schedule: Schedule, run: Run) -> str:
    """The steps of a run in sequence: `attn, router`."""
    return ", ".join(step_text(schedule, step) for step in run.steps)


def _rows(schedule: Schedule, kind: Kind) -> tuple[Row, ...]:
    kept = (_kept(window.runs, kind) for window in schedule.sections[0].windows)
    return tuple(row for row in kept if row)


def _kept(runs: Row, kind: Kind) -> Row:
    match kind:
        case "loop":
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
