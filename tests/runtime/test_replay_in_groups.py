"""Captured steps whose collectives have other process groups than before."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from dynaflow_dsl.runtime import Executor
from dynaflow_dsl.runtime.groups import bind_group, release_group, stand_in_group
from dynaflow_dsl.runtime.ranks import Ranks
from tests.runtime.fake_graphs import FakeGraphs, loaded
from tests.runtime.test_replay import Server, agrees
from tests.runtime.toy_model import Toy


@pytest.fixture
def met(
    halves: ModuleType,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    backend: FakeGraphs,
) -> Iterator[Executor]:
    """The step of one rank in a group of two."""
    step = loaded(halves, toy, monkeypatch, backend)
    bind_group("played", stand_in_group(2, 0))
    ranks = Ranks(("played", "played:comm"), {}, always=False)
    ranks.meet()
    step._ranks, step._met = ranks, ranks.meetings
    yield step
    release_group("played")


def test_groups_that_are_bound_anew_are_captured_anew(
    met: Executor, toy: Toy, backend: FakeGraphs, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(4)
    for _ in range(3):
        agrees(met, toy, server, 4)
    assert backend.replays == [0, 0]
    bind_group("played", stand_in_group(2, 0))
    for _ in range(3):
        agrees(met, toy, server, 4)
    # The first of these is uncaptured, and recorded once more.
    assert backend.replays == [0, 0, 1, 1]
    (said,) = caplog.messages
    assert "process groups were bound anew" in said


def test_other_roles_change_nothing(
    met: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    server = Server(4)
    agrees(met, toy, server, 4)
    bind_group("other", stand_in_group(2, 0))
    try:
        agrees(met, toy, server, 4)
    finally:
        release_group("other")
    assert len(backend.graphs) == 1
