"""The views as plain data, for `--output-format json`."""

from __future__ import annotations

from collections.abc import Mapping

from dynaflow_dsl.bind.model import Binding, BoundPart
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.resolve.model import Run, Schedule
from dynaflow_dsl.views.blocks import blocks
from dynaflow_dsl.views.claims import Claimed, claimed


def schedule_data(schedule: Schedule, iterations: int | None) -> dict[str, object]:
    """Streams, split and windows of a schedule; `iterations` is null when unknown."""
    split = schedule.split
    return {
        "schedule": schedule.name,
        "streams": ["main", *(stream.name for stream in schedule.streams)],
        "split": None
        if split is None
        else {"dimension": split.dimension, "weights": [str(w) for w in split.weights]},
        "iterations": iterations,
        "blocks": [
            {
                "block": block.kind,
                "windows": [[_run(run) for run in row] for row in block.rows],
            }
            for block in blocks(schedule)
        ],
    }


def parts_data(binding: Binding) -> dict[str, object]:
    """Every part with its programs and the iterations that run each."""
    claims = claimed(binding)
    outside = [part for part in (binding.before, binding.after) if part is not None]
    return {
        "schedule": binding.schedule.name,
        "entry": binding.graph.entry,
        "iterations": [iteration.path for iteration in binding.iterations],
        "parts": [
            *(_part(part, None) for part in outside if part is binding.before),
            *(_part(part, claims) for part in binding.parts),
            *(_part(part, None) for part in outside if part is binding.after),
        ],
    }


def _run(run: Run) -> dict[str, object]:
    steps = [
        {"part": step.part, "piece": step.piece, "previous": step.previous}
        for step in run.steps
    ]
    return {"stream": run.stream, "steps": steps}


def _part(part: BoundPart, claims: Claimed | None) -> dict[str, object]:
    used = [instance.body for instance in part.instances]
    bodies = []
    for number, body in enumerate(part.bodies):
        terms = claims(part, used.index(number)) if claims is not None else {}
        bodies.append(
            [_operation(item, part.attached, terms) for item in body.operations]
        )
    return {"part": part.name, "instances": used, "bodies": bodies}


def _operation(
    operation: Operation, attached: frozenset[str], terms: Mapping[str, str]
) -> dict[str, object]:
    source = operation.source
    return {
        "name": operation.name,
        "operator": operation.operator,
        "module": operation.module,
        "source": None if source is None else str(source),
        "view": operation.view,
        "attached": operation.name in attached,
        "selector": terms.get(operation.name),
        "marks": list(operation.marks),
    }
