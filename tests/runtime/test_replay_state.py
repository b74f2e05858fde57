"""What captured steps leave behind, and what is skipped for one that comes again."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from dynaflow_dsl.runtime import Capture, Executor, InputError
from tests.runtime.fake_graphs import IN_PLACE, FakeGraphs, loaded
from tests.runtime.test_replay import INDEX_COPY, Server, agrees
from tests.runtime.toy_model import Toy


@pytest.mark.parametrize("pieces", [False, True])
def test_what_is_captured_in_inference_mode_is_replayed_in_any(
    pieces: bool, halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeGraphs(blocking=frozenset({INDEX_COPY} if pieces else ()))
    capture = Capture({"batch": (2, 4)}, in_place=IN_PLACE, pieces=pieces)
    step = loaded(halves, toy, monkeypatch, backend, capture)
    server = Server(4)
    with torch.inference_mode():
        agrees(step, toy, server, 4)
    agrees(step, toy, server, 4)
    agrees(step, toy, server, 4)
    assert backend.replays
    with torch.inference_mode():
        made = step.buffers(batch=9)
    made["input_ids"].zero_()


def test_a_part_that_fails_between_graphs_is_named_in_every_step(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeGraphs(blocking=frozenset({INDEX_COPY}))
    capture = Capture({"batch": (4,)}, in_place=IN_PLACE, pieces=True)
    step = loaded(halves, toy, monkeypatch, backend, capture)
    abandoned: list[str] = []
    monkeypatch.setattr(step.streams, "abandon", lambda: abandoned.append("streams"))
    arguments = Server(4).step(4)
    step(*arguments)
    step(*arguments)
    assert step.replays is not None
    assert step.replays.find(arguments) is not None
    # The slot of the cache that is written: there is none like it.
    arguments[2].fill_(10_000)
    with pytest.raises((IndexError, RuntimeError)) as caught:
        step(*arguments)
    assert any("index_copy" in note for note in caught.value.__notes__)
    assert abandoned == ["streams"]


def test_an_input_that_shares_memory_with_a_cache_is_refused_when_it_comes_again(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch, backend: FakeGraphs
) -> None:
    monkeypatch.setattr(halves.ToyHalvesDecode, "written", IN_PLACE)
    step = loaded(halves, toy, monkeypatch, backend)
    ids, mask, slot, keys, values = Server(4).step(4)
    for _ in range(3):
        step(ids, mask, slot, keys, values)
    inside = keys[0].flatten().view(torch.bool)[: mask.numel()].view_as(mask)
    for _ in range(2):
        with pytest.raises(InputError, match=r"`keys\[0\]` and `mask` share memory"):
            step(ids, inside, slot, keys, values)


def test_rows_of_a_buffer_may_be_given_for_a_smaller_step(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    server = Server(4)
    agrees(step, toy, server, 4)
    agrees(step, toy, server, 2)
    for _ in range(2):
        whole = step.buffers(batch=4)["input_ids"]
        whole.copy_(torch.tensor([3, 1, 4, 2]).view_as(whole))
        _, mask, slot, keys, values = server.step(2)
        before = server.copy()
        with torch.no_grad():
            expected = toy(whole[1:3].clone(), mask, slot, keys, values)
        server.restore(before)
        given = step(whole[1:3], mask, slot, keys, values)
        torch.testing.assert_close(given, expected)
    assert backend.replays == [1, 1]


def test_no_more_sizes_are_remembered_than_some(
    halves: ModuleType,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    backend: FakeGraphs,
) -> None:
    monkeypatch.setattr("dynaflow_dsl.runtime.replay.MOST_SIZES", 3)
    monkeypatch.setattr("dynaflow_dsl.runtime.known_steps.MOST_KNOWN", 3)
    capture = Capture({"batch": (8,)}, in_place=IN_PLACE, padding={"batch": (0,)})
    step = loaded(halves, toy, monkeypatch, backend, capture)
    replays = step.replays
    assert replays is not None
    server = Server(16)
    agrees(step, toy, server, 8)
    for batch in (2, 3, 4, 5, 6, 7, 2):
        step(*server.step(batch))
    for batch in range(9, 16):
        agrees(step, toy, server, batch)
    kept = [replays._replays, replays._alone, replays._refused, replays._known._known]
    assert [len(one) <= 4 for one in kept] == [True] * 4
    # That of the captured size stays.
    assert len(backend.replays) == 7
    agrees(step, toy, server, 8)
    assert len(backend.replays) == 8
    larger = step.uncaptured({"batch": 11})
    assert larger is not None
    assert larger.reason == "no captured size can stand for it"
