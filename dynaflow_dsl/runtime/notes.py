"""Says which step of the schedule an exception came from."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from types import FrameType

from dynaflow_dsl.runtime.groups import unplayed_role
from dynaflow_dsl.runtime.module_map import ModuleMap, PlanLines

# Parts that run once, outside of the layers; `.dfs` files cannot name parts so.
OUTSIDE = ("before", "after")


def add_place(
    error: BaseException,
    file: str,
    module_map: ModuleMap,
    layers: Mapping[str, Sequence[int]],
) -> None:
    """Note on `error` which step of which layer was running in the module `file`.

    `layers` are the layer numbers of each part, by its name. Where torch misses the
    group of a role, a note says how to give it one.
    """
    if (advice := unplayed_role(error)) is not None:
        error.add_note(advice)
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename != file:
            continue
        if (entry := module_map.plan_lines(line)) is not None:
            place = f"{module_map.source}:{entry.line}:{entry.column}"
            layer = _layer(entry, frame, layers)
            numbered = "" if layer is None else f", layer {layer}"
            error.add_note(f"in {entry.label}{numbered} · {place}")
        elif (loop := module_map.loop(line)) is not None:
            position = frame.f_locals.get("i")
            if isinstance(position, int) and position < len(loop.modules):
                error.add_note(f"in module {loop.modules[position]}")
        elif (operation := module_map.operation(line)) is not None:
            source = f" · {operation.source}" if operation.source else ""
            error.add_note(f"at operation {operation.operation}{source}")


def step_now(file: str, module_map: ModuleMap, name: str, layer: int | None) -> str:
    """The step that the module in `file` runs: `mlp[1], layer 2 (halves.dfs:17:13)`.

    `name` and `layer` are the part that is called, with the number of the layer. The
    lines of a module that was edited have no steps: they are named themselves.
    """
    return step_at(line_now(file), module_map, name, layer)


def line_now(file: str) -> int | None:
    """The line of the module in `file` that is running; None where it is not."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return None if frame is None else frame.f_lineno


def step_at(
    line: int | None, module_map: ModuleMap, name: str, layer: int | None
) -> str:
    """`step_now` for a line of the module."""
    numbered = "" if layer is None or name in OUTSIDE else f", layer {layer}"
    if line is None:
        return name + numbered
    entry = module_map.plan_lines(line)
    if entry is None:
        return f"{name}{numbered} ({module_map.module}:{line})"
    if entry.layer is None:
        numbered = ""
    place = f"{module_map.source}:{entry.line}:{entry.column}"
    return f"{entry.label.removeprefix('prev.')}{numbered} ({place})"


def _layer(
    entry: PlanLines, frame: FrameType, layers: Mapping[str, Sequence[int]]
) -> int | None:
    part = entry.label.removeprefix("prev.").partition("[")[0]
    if part in OUTSIDE:
        return None
    match entry.layer:
        case None:
            return None
        case "i" | "i - 1":
            position = frame.f_locals.get("i")
            if not isinstance(position, int):
                return None
            position -= entry.layer == "i - 1"
        case number:
            if not number.isdigit():
                return None
            position = int(number)
    # A part that is named like something executors have gets a longer attribute.
    known = layers.get(part) or layers.get(f"part_{part}", ())
    return known[position] if position < len(known) else position
