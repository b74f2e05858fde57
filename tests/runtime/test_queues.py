"""A collective is under way from its place in the schedule to its first reader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import RankError, bind_group, release_group
from dynaflow_dsl.runtime.queues import CpuQueues
from dynaflow_dsl.runtime.stream_names import group_of_stream
from dynaflow_dsl.runtime.streams import one_stream
from tests.end_to_end.building import Built, build
from tests.runtime import small_ranks
from tests.runtime.small_ranks import HeldGroup


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("halves")
    return build(small_ranks.target(), small_ranks.HALVES, folder)


def logged(step: Any, log: list[str]) -> Any:
    """The step, whose computing parts are noted as they begin."""
    part = step.compute

    def compute(position: int, *arguments: Any) -> Any:
        with HeldGroup.changed:
            log.append(f"compute {log_count(log, 'compute')}")
            HeldGroup.changed.notify_all()
        return part(position, *arguments)

    step.compute = compute
    return step


def log_count(log: list[str], word: str) -> int:
    return sum(line.startswith(word) for line in log)


def play(may_end: Callable[[int], bool], log: list[str]) -> None:
    for name in (small_ranks.ROLE, f"{small_ranks.ROLE}:comm"):
        bind_group(name, HeldGroup(may_end, log))


@pytest.fixture(autouse=True)
def released() -> Any:
    yield
    release_group(small_ranks.ROLE)


def test_a_collective_ends_only_after_the_step_beside_it_has_begun(
    built: Built,
) -> None:
    log: list[str] = []
    last = 2 * small_ranks.LAYERS

    def may_end(number: int) -> bool:
        # Sum n is that of computation n; n + 1 stands in the same window.
        return log_count(log, "compute") >= min(number + 2, last)

    play(may_end, log)
    step = logged(built.module.load(built.spec.model, compile=False), log)
    x = torch.randn(5, small_ranks.WIDTH)
    found = step(x)
    assert log_count(log, "sum") == log_count(log, "compute") == last
    # The same pieces in the order of the text, where nothing is held.
    log.clear()
    play(lambda number: True, log)
    in_turn = built.module.load(built.spec.model, compile=False, streams=one_stream)
    assert torch.equal(found, in_turn(x))


def test_held_collectives_are_awaited_where_steps_are_in_turn(built: Built) -> None:
    """In turn they are never under way: what holds one, holds all."""
    log: list[str] = []
    play(lambda number: False, log)
    step = built.module.load(built.spec.model, compile=False, streams=one_stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeldGroup.changed, "wait_for", lambda *_, **__: False)
        with pytest.raises(RankError, match="DFS816") as caught:
            step(torch.randn(4, small_ranks.WIDTH))
    assert log == ["sum 0"]
    assert "the collective of reduce[0], layer 0 (test.dfs:14:13)" in str(caught.value)


def test_a_failure_names_the_step_that_started_the_collective(built: Built) -> None:
    """It is seen where the result is first read, by another step."""
    log: list[str] = []
    play(lambda number: number != 3, log)
    step = logged(built.module.load(built.spec.model, compile=False), log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeldGroup.changed, "wait_for", lambda may_end, **_: may_end())
        with pytest.raises(RankError) as caught:
            step(torch.randn(4, small_ranks.WIDTH))
    said = str(caught.value)
    assert "the collective of reduce[1], layer 1 (test.dfs:14:13)" in said
    assert "nobody let the collective end" in said
    # The next step begins anew.
    play(lambda number: True, log)
    assert step(torch.randn(4, small_ranks.WIDTH)).shape == (4, small_ranks.WIDTH)


def test_compiled_parts_are_under_way_too(built: Built, tmp_path: Path) -> None:
    log: list[str] = []
    last = 2 * small_ranks.LAYERS
    play(lambda n: log_count(log, "compute") >= min(n + 2, last), log)
    step = logged(built.module.load(built.spec.model, cache=tmp_path), log)
    x = torch.randn(5, small_ranks.WIDTH)
    found = step(x)
    log.clear()
    play(lambda number: True, log)
    in_turn = built.module.load(built.spec.model, cache=tmp_path, streams=one_stream)
    assert torch.equal(found, in_turn(x))


def test_parts_in_a_row_are_handed_over_without_a_wait() -> None:
    """The second one's arguments are looked at and cut, and nothing of them is read."""
    may_begin = threading.Event()
    streams = CpuQueues(["comm"])
    (comm,) = streams._queues

    def held(x: torch.Tensor) -> torch.Tensor:
        assert may_begin.wait(20)
        return x + 1

    call = streams.led(held, lambda x: x + 1, lambda: lambda error: error)
    x = torch.arange(4.0)
    with comm:
        first = call(x[0:2])
    with comm:
        second = call(first[0:1])
        whole = torch.empty(2, 1)
    assert whole.shape == (2, 1)
    assert not may_begin.is_set()
    may_begin.set()
    streams.join()
    assert torch.equal(first, x[0:2] + 1)
    assert torch.equal(second, x[0:1] + 2)


def test_what_joins_pieces_waits_for_them() -> None:
    streams = CpuQueues(["comm"])
    (comm,) = streams._queues
    call = streams.led(lambda x: x + 1, lambda x: x + 1, lambda: lambda error: error)
    x = torch.arange(4.0)
    with comm:
        pieces = [call(x[0:2])]
    with comm:
        pieces.append(call(x[2:4]))
    with comm:
        joined = torch.cat(pieces)
    assert torch.equal(joined, x + 1)


def test_a_part_finds_the_name_of_its_stream_on_either_thread() -> None:
    streams = CpuQueues(["first", "second"])
    found: list[tuple[str, bool]] = []

    def noting(x: torch.Tensor) -> torch.Tensor:
        here = threading.current_thread() is threading.main_thread()
        found.append((group_of_stream("tp"), here))
        return x + 1

    on_host = streams.led(noting, lambda x: x + 1, None)
    handed_over = streams.led(noting, lambda x: x + 1, lambda: lambda error: error)
    x = torch.arange(4.0)
    on_host(x)
    for queue in streams._queues:
        with queue:
            on_host(x)
            handed_over(x)
        streams.join()
    on_host(x)
    assert found == [
        ("tp", True),
        ("tp:first", True),
        ("tp:first", False),
        ("tp:second", True),
        ("tp:second", False),
        ("tp", True),
    ]


def test_parts_run_in_the_context_of_their_piece(tmp_path: Path) -> None:
    """A thread would run them when it has been left."""
    inside: list[slice] = []
    seen: list[list[slice]] = []

    @contextmanager
    def context(rows: slice) -> Iterator[None]:
        inside.append(rows)
        yield
        inside.pop()

    def may_end(number: int) -> bool:
        seen.append(list(inside))
        return True

    spec = replace(small_ranks.target(), context=context)
    built = build(spec, small_ranks.HALVES, tmp_path)
    play(may_end, [])
    step = built.module.load(spec.model, compile=False, context=context)
    step(torch.randn(6, small_ranks.WIDTH))
    assert seen
    assert all(len(rows) == 1 for rows in seen)
