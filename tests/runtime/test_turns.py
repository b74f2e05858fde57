"""Graphs share memory: their replays follow each other, whoever calls on what stream.

Steps run on streams of their own, and the simulator tries every order of the streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import Capture, Executor
from tests.runtime.caller_streams import Callers, QueueGraphs
from tests.runtime.fake_graphs import CAPTURE, IN_PLACE, loaded
from tests.runtime.test_replay import INDEX_COPY, Server
from tests.runtime.toy_model import Toy

# Each caller has a cache of its own and steps of one size.
SIZES = {"here": 2, "there": 4}
IN_PIECES = Capture({"batch": (2, 4)}, in_place=IN_PLACE, pieces=True)
ALTERNATING = ("here", "there", "here", "there", "here", "here", "there")
# The first step of a size comes while a graph of the other one may still run.
LATE = ("here", "here", "there", "there", "here")


def run(
    module: ModuleType,
    toy: Toy,
    patch: pytest.MonkeyPatch,
    steps: Sequence[str],
    *,
    turns: bool = True,
    capture: Capture = CAPTURE,
    **options: Any,
) -> tuple[Callers, list[torch.Tensor], QueueGraphs]:
    """Callers whose steps alternate, and what they were given last."""
    callers = Callers(patch, tuple(SIZES))
    blocking = frozenset({INDEX_COPY} if capture.pieces else ())
    backend = QueueGraphs(callers=callers, blocking=blocking)
    if not turns:
        backend.turn = lambda _: None
    step: Executor = loaded(module, toy, patch, backend, capture, **options)
    servers = {stream: Server(4) for stream in SIZES}
    results = []
    for stream in steps:
        arguments = servers[stream].step(SIZES[stream])
        with callers.on(stream):
            result = step(*arguments)
            if not options:
                # The caller looks at it before the next step.
                result.sum()
        results.append(result)
    return callers, results, backend


@pytest.mark.parametrize("steps", [ALTERNATING, LATE], ids=["alternating", "late"])
def test_replays_on_several_streams_follow_each_other(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch, steps: Sequence[str]
) -> None:
    callers, results, backend = run(halves, toy, monkeypatch, steps)
    assert len(backend.graphs) == 2
    assert len(backend.replays) == len(steps) - 2
    with callers.on("here"):
        # Results are the callers' own, whatever is replayed later.
        results[steps.index("here")].sum()
    assert callers.faults() == set()


@pytest.mark.parametrize("steps", [ALTERNATING, LATE], ids=["alternating", "late"])
def test_without_turns_they_write_over_each_others_memory(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch, steps: Sequence[str]
) -> None:
    callers, *_ = run(halves, toy, monkeypatch, steps, turns=False)
    assert callers.faults() & {"overwritten", "race"}


def test_graphs_in_pieces_follow_each_other(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers, _, backend = run(halves, toy, monkeypatch, LATE, capture=IN_PIECES)
    assert len(backend.graphs) > 2
    assert callers.faults() == set()
    callers, *_ = run(halves, toy, monkeypatch, LATE, capture=IN_PIECES, turns=False)
    assert callers.faults() & {"overwritten", "race"}


def test_buffers_are_made_in_a_turn_of_their_own(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who makes them on one stream does not zero what a step on another one fills."""
    callers = Callers(monkeypatch, tuple(SIZES))
    step = loaded(halves, toy, monkeypatch, QueueGraphs(callers=callers), CAPTURE)
    server = Server(4)
    with callers.on("here"):
        step.buffers(batch=4)
    for _ in range(2):
        arguments = server.step(4)
        with callers.on("there"):
            step(*arguments)
    assert callers.faults() == set()


def test_lent_results_hold_until_the_next_step(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lent(late: bool) -> set[str]:
        steps = ("here", "there", "here", "there")
        callers, results, _ = run(halves, toy, monkeypatch, steps, outputs="lent")
        with callers.on("here" if late else "there"):
            results[2 if late else 3].sum()
        return callers.faults()

    assert lent(late=False) == set()
    assert lent(late=True) & {"overwritten", "race"}
