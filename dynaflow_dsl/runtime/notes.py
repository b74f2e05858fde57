"""Says which step of the schedule an exception came from."""

from __future__ import annotations

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
        elif (operation := module_map.operation(line)) is not None:
            source = f" · {operation.source}" if operation.source else ""
            error.add_note(f"at operation {operation.operation}{source}")


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
