"""Delays find plans that were broken on purpose, and nothing in whole ones."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch

from dynaflow_dsl.runtime.watch import Step
from dynaflow_dsl.verification.arena import Arena, Layout
from dynaflow_dsl.verification.stress import Timed, stress
from dynaflow_dsl.verification.stress_report import StressReport, StressRun
from dynaflow_dsl.verification.stressed import stress_module
from tests.runtime.toy_model import Toy, make_arguments
from tests.runtime.write_toy_maps import EXECUTORS
from tests.verification.mutations import (
    Mutation,
    with_frees_at_readers,
    with_shared_results,
    without_waits,
    write_module,
)

TEXTS = {
    name: (EXECUTORS / f"{name}.py").read_text(encoding="utf-8")
    for name in ("toy_halves", "toy_lanes")
}


def stressed(module: ModuleType, model: Toy, batch: int, trials: int) -> StressRun:
    report = stress_module(
        module, model, make_arguments(batch), batch=batch, trials=trials
    )
    (run,) = report.runs
    assert run.way == "interleaved"
    assert report.ok is not bool(run.failures)
    return run


def mutated(folder: Path, name: str, mutation: Mutation) -> ModuleType:
    document = json.loads((EXECUTORS / f"{name}.map.json").read_text())
    return write_module(folder, name, mutation.text, document)


def test_orders_change_nothing(halves: ModuleType, lanes: ModuleType, toy: Toy) -> None:
    for module in (halves, lanes):
        run = stressed(module, toy, 6, 12)
        assert run.failures == ()
        assert run.pairs > 3
        assert run.both == run.pairs


@pytest.mark.parametrize(
    ("name", "mutation"),
    [
        pytest.param(name, mutation, id=f"{name} {mutation.name}")
        for name, text in TEXTS.items()
        for mutation in without_waits(text)
    ],
)
def test_each_missing_wait_is_found(
    tmp_path: Path, toy: Toy, name: str, mutation: Mutation
) -> None:
    run = stressed(mutated(tmp_path, name, mutation), toy, 6, 12)
    assert run.failures
    assert all(failure.pair is not None for failure in run.failures)


def test_the_pair_behind_a_missing_wait_is_named(tmp_path: Path, toy: Toy) -> None:
    (mutation,) = (
        one
        for one in without_waits(TEXTS["toy_halves"])
        if "line 45: main.wait(attn_0_done)" in one.name
    )
    run = stressed(mutated(tmp_path, "toy_halves", mutation), toy, 6, 12)
    assert (
        " attn[0] layer 0 on side (line 11) and mlp[0] layer 0 on main (line 12)"
        in (str(run.failures[0]))
    )


def test_a_result_that_is_freed_at_its_readers(tmp_path: Path, toy: Toy) -> None:
    mutation = with_frees_at_readers(TEXTS["toy_halves"], "attn_0")
    run = stressed(mutated(tmp_path, "toy_halves", mutation), toy, 6, 12)
    named = {str(failure.pair) for failure in run.failures}
    assert any("mlp[0]" in pair and "attn[1]" in pair for pair in named), named


def test_two_pieces_that_share_memory(tmp_path: Path, toy: Toy) -> None:
    mutation = with_shared_results(TEXTS["toy_halves"], "attn_1", "attn_0")
    run = stressed(mutated(tmp_path, "toy_halves", mutation), toy, 6, 12)
    named = {str(failure.pair) for failure in run.failures}
    assert any("mlp[0]" in pair and "attn[1]" in pair for pair in named), named


# ---- a device of numbers alone ---------------------------------------------------


class Simulated:
    """Steps of given lengths on streams; wrong where `second` begins too early."""

    name = "simulated"
    slack = 0.0

    def __init__(
        self,
        streams: Sequence[str],
        lengths: Sequence[float],
        unordered: Sequence[tuple[int, int]],
        race: tuple[int, int] | None = None,
    ) -> None:
        self.steps = [
            Step(f"p{k}", f"p{k}", stream, 0, None, 0)
            for k, stream in enumerate(streams)
        ]
        self.unordered = unordered
        self._lengths = lengths
        self._race = race
        self.runs = 0

    def run(self, releases: Mapping[int, float]) -> Timed:
        self.runs += 1
        times: list[tuple[float, float]] = []
        near = {*self.unordered}
        for step, length in enumerate(self._lengths):
            start = releases.get(step, 0.0)
            for before in range(step):
                if (before, step) not in near:
                    start = max(start, times[before][1])
            times.append((start, start + length))
        wrong = False
        if self._race is not None:
            first, second = self._race
            wrong = times[second][0] < times[first][1]
        return Timed(times, [torch.tensor(1.0 if wrong else 0.0)])


def judge(tensors: Sequence[torch.Tensor]) -> str | None:
    return "output differs" if tensors[0].item() else None


def pairs(streams: Sequence[str]) -> list[tuple[int, int]]:
    """All pairs of two streams that never wait for each other."""
    return [
        (a, b)
        for b in range(len(streams))
        for a in range(b)
        if streams[a] != streams[b]
    ]


@pytest.mark.parametrize("seed", range(3))
def test_streams_that_never_wait_are_seen_in_both_orders(seed: int) -> None:
    draw = random.Random(seed)
    streams = [draw.choice(["main", "side", "other"]) for _ in range(24)]
    lengths = [draw.uniform(1.0, 20.0) for _ in streams]
    device = Simulated(streams, lengths, pairs(streams))
    run = stress(device, 12, judge, seed)
    assert run.failures == ()
    assert run.share >= 0.9
    assert device.runs == 13


@pytest.mark.parametrize("race", [(0, 1), (2, 5), (4, 7), (0, 7)])
def test_any_racing_pair_is_named(race: tuple[int, int]) -> None:
    streams = ["main", "side"] * 4
    device = Simulated(streams, [3.0] * 8, pairs(streams), race)
    run = stress(device, 12, judge)
    named = {
        (failure.pair.first, failure.pair.second)
        for failure in run.failures
        if failure.pair is not None
    }
    assert (f"p{race[0]}", f"p{race[1]}") in named


def test_few_runs_say_which_pairs_are_missing() -> None:
    streams = ["main", "side"] * 10
    run = stress(Simulated(streams, [1.0] * 20, pairs(streams)), 1, judge)
    assert run.share < 0.9
    report = StressReport("m.py", "decode", "", 8, (run,))
    assert report.ok
    assert "fewer than 90%: ask for more runs" in str(report)
    assert str(run.missed[0]) in str(report)


# ---- memory ----------------------------------------------------------------------


def test_a_block_goes_back_to_its_stream_when_nothing_holds_it() -> None:
    arena = Arena()
    layout = Layout((4, 8), (8, 1), torch.float32)
    one = arena.take("side", layout)
    assert bool(one.isnan().all())
    address, view = one.data_ptr(), one[1]
    shown = arena.unowned(view)
    del one
    other = arena.take("side", layout)
    assert other.data_ptr() != address
    del view
    assert arena.take("main", layout).data_ptr() != address
    again = arena.take("side", layout)
    assert again.data_ptr() == address
    again.fill_(2.0)
    assert shown.tolist() == [2.0] * 8
