"""The views as plain data, for `--output-format json`."""

from __future__ import annotations

from collections.abc import Mapping

from dynaflow_dsl.bind.model import Binding, BoundPart
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.resolve.model import Run, Schedule
from dynaflow_dsl.views.blocks import blocks
from dynaflow_dsl.views.claims import Claimed, claimed
from dynaflow_dsl.views.windows import Counts


def schedule_data(schedule: Schedule, iterations: Counts | None) -> dict[str, object]:
    """Streams, split and windows of a schedule; `iterations` is null when unknown."""
    split = schedule.split
    return {
        "schedule": schedule.name,
        "streams": ["main", *(stream.name for stream in schedule.streams)],
        "split": None
        if split is None
        else {"dimension": split.dimension, "weights": [str(w) for w in split.weights]},
        "sections": [
            {
                "each": section.each.name if section.each is not None else None,
                "iterations": iterations[number] if iterations is not None else None,
                "blocks": [
                    {
                        "block": block.kind,
                        "windows": [[_run(run) for run in row] for row in block.rows],
                    }
                    for block in blocks(section)
                ],
            }
            for number, section in enumerate(schedule.sections)
        ],
    }


def parts_data(binding: Binding) -> dict[str, object]:
    """Every part with its programs and the iterations that run each."""
    claims = claimed(binding)
    named = {part.name for part in binding.parts}
    return {
        "schedule": binding.schedule.name,
        "entry": binding.graph.entry,
        "sections": [
            {
                "each": section.word or None,
                "iterations": [iteration.path for iteration in section.iterations],
                "parts": [part.name for part in section.parts],
            }
            for section in binding.sections
        ],
        "gaps": [
            {"section": place.section, "iteration": place.iteration}
            for place in (binding.gaps.places if binding.gaps is not None else ())
        ],
        "parts": [
            _part(part, claims if part.name in named else None)
            for part in binding.everything
        ],
    }


def _run(run: Run) -> dict[str, object]:
    steps = [
        {
            "part": step.part,
            "piece": step.piece,
            "previous": step.previous,
            "after": [
                {"part": one.part, "piece": one.piece, "previous": one.previous}
                for one in step.after
            ],
        }
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
    found: dict[str, object] = {
        "part": part.name,
        "instances": used,
        "bodies": bodies,
    }
    if part.fetches:
        found["weights"] = [list(body.parameters) for body in part.bodies]
    return found


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
