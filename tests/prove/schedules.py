"""Schedules over one two-part or three-part model, and the modules made of them."""

from __future__ import annotations

from dataclasses import dataclass

from dynaflow_dsl.emit import Module, emit
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.plan import plan
from dynaflow_dsl.plan.model import Plan
from dynaflow_dsl.prove.model import ProvedPlan
from dynaflow_dsl.resolve.model import ScheduleFile
from tests.plan.layered import Layered, Read, Shape, binding_of, file_of, traced

CARRIED = Read("mlp", carried=True)

# attn writes its cache; mlp adds to what the layers carry.
TWO = Layered(
    (
        Shape("attn", (CARRIED,), cache="w"),
        Shape("mlp", (CARRIED, Read("attn"))),
    ),
    layers=3,
    results=(),
    head=(("mlp", 0),),
)
BARE = Layered(TWO.shapes, layers=3, results=(("mlp", 0),), embed=False)
THREE = Layered(
    (
        Shape("attn", (Read("down", carried=True),), cache="w"),
        Shape("gate", (Read("down", carried=True), Read("attn")), outputs=2),
        Shape("down", (Read("gate", 0), Read("gate", 1), Read("attn"))),
    ),
    layers=3,
    results=(),
    head=(("down", 0),),
)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule with its plan, and how to write a changed plan as a module."""

    file: ScheduleFile
    model: TracedModel
    plan: Plan

    def text(self, changed: Plan | None = None) -> str:
        return self._module(changed or self.plan).text

    def map(self) -> str:
        return self._module(self.plan).map

    def _module(self, plan: Plan) -> Module:
        return emit([ProvedPlan(plan, 0, ())], self.file, "s", "s.dfs", self.model)


def scheduled(
    model: Layered,
    on: dict[str, str | list[str]],
    pieces: int | str,
    timeline: str,
    *streams: str,
) -> Scheduled:
    file = file_of(model, on, pieces, timeline, streams)
    return Scheduled(file, traced(model), plan(binding_of(file, model)).unwrap())


def stagger(*stages: str, by: int = 1) -> str:
    return f"stagger mb by {by}:\n" + "\n".join(f"    {stage}" for stage in stages)


def order(*windows: str) -> str:
    return "order:\n" + "\n".join(f"    {window}" for window in windows)


def schedules() -> dict[str, Scheduled]:
    """One of each kind."""
    halves = stagger("attn", "mlp")
    return {
        "halves": scheduled(TWO, {"attn": "side"}, 2, halves, "side"),
        "halves, mlp aside": scheduled(TWO, {"mlp": "side"}, 2, halves, "side"),
        "a half on each": scheduled(
            TWO, {"attn": ["main", "side"], "mlp": ["main", "side"]}, 2, halves, "side"
        ),
        "bare halves": scheduled(BARE, {"mlp": "side"}, 2, halves, "side"),
        "three uneven pieces": scheduled(
            THREE,
            {"attn": "left", "gate": "right"},
            "[3, 2, 1]",
            stagger("attn", "gate", "down"),
            "left",
            "right",
        ),
        "four pieces": scheduled(
            TWO,
            {"attn": "side"},
            4,
            order(
                "attn[0] | prev.mlp[3]",
                "attn[1] | mlp[0]",
                "attn[2] | mlp[1]",
                "attn[3] | mlp[2]",
            ),
            "side",
        ),
        "no split": scheduled(
            THREE, {"gate": "side"}, 1, order("attn", "gate", "down"), "side"
        ),
        "no split, last aside": scheduled(
            BARE, {"mlp": "side"}, 1, order("attn", "mlp"), "side"
        ),
        "three streams": scheduled(
            THREE,
            {"attn": "left", "gate": "right"},
            2,
            order(
                "attn[0] | prev.gate[1]",
                "prev.down[1]",
                "gate[0] | attn[1]",
                "down[0]",
            ),
            "left",
            "right",
        ),
    }


SCHEDULED_HALVES = schedules()["halves"]
SHORT = ("halves", "three uneven pieces", "no split, last aside")
