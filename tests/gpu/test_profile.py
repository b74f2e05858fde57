"""Profiles of eager and replayed steps; run with `pytest -m gpu`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynaflow_dsl.measurement.profile import Profile, profile_step
from dynaflow_dsl.measurement.trace_file import Shown, assigned, trace_document
from dynaflow_dsl.models import llama
from tests.end_to_end.building import Built, build, halves

pytestmark = pytest.mark.gpu


def profiled(made: Built, *, replay: bool, runs: int = 3) -> Profile:
    def load(streams: Any) -> Any:
        return made.module.load(made.spec.model, "cuda", capture=False, streams=streams)

    arguments = made.spec.entries["decode"].arguments({"batch": 32})
    return profile_step(load, arguments, runs=runs, replay=replay)


def kernels(profile: Profile) -> dict[tuple[str, int], list[str]]:
    """The names of the kernels of each step in each run."""
    return {
        (str(one.step), one.run): [
            work.name for work in one.work if not work.name.startswith("Mem")
        ]
        for one in profile.timeline.steps
    }


def test_replayed_kernels_belong_to_their_steps(tmp_path: Path) -> None:
    spec = llama.decode(layers=4, hidden=256, device="cuda", dtype="bfloat16")
    made = build(spec, halves(), tmp_path)
    eager = profiled(made, replay=False)
    replayed = profiled(made, replay=True)
    assert replayed.replayed, replayed.refused
    for profile in (eager, replayed):
        inside, whole = assigned([profile])
        print(profile.device, profile.replayed, inside, whole)
        print([one.name for one in profile.timeline.outside[:10]])
        assert inside >= 0.95 * whole > 0
        assert all(one.work for one in profile.timeline.steps if one.step.part)
    expected, found = kernels(eager), kernels(replayed)
    assert set(expected) == set(found)
    different = [step for step in expected if expected[step] != found[step]]
    assert not different, [(step, expected[step], found[step]) for step in different]


def test_the_trace_says_part_microbatch_and_layer(tmp_path: Path) -> None:
    spec = llama.decode(layers=2, hidden=256, device="cuda", dtype="bfloat16")
    made = build(spec, halves(), tmp_path)
    document = json.loads(
        json.dumps(
            trace_document([Shown("halves", profiled(made, replay=True, runs=1))])
        )
    )
    events = document["traceEvents"]
    names = {
        event["tid"]: event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    work = [event for event in events if event.get("cat") == "work" and event["args"]]
    seen = {
        (
            names[event["tid"]],
            event["args"]["part"],
            event["args"].get("microbatch"),
            event["args"].get("layer"),
        )
        for event in work
        if "part" in event["args"]
    }
    for layer in range(2):
        for piece in range(2):
            assert ("side", "attn", piece, layer) in seen
            assert ("main", "mlp", piece, layer) in seen
