"""Which steps are captured, replayed, padded or left as they are, on a fake device."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import Capture, Executor, InputError, Selected
from tests.runtime.fake_graphs import IN_PLACE, FakeGraphs, loaded
from tests.runtime.toy_model import Toy, make_arguments

PADDED = Capture({"batch": (2, 4)}, in_place=IN_PLACE, padding={"batch": (0,)})
INDEX_COPY = "aten.index_copy_.default"


class Server:
    """A cache with room for some rows, of which every step has the first ones."""

    def __init__(self, rows: int) -> None:
        self.arguments = make_arguments(rows)

    def step(self, batch: int) -> tuple[Any, ...]:
        """New tokens, and the same cache."""
        ids, mask, slot, _, _ = make_arguments(batch)
        _, _, _, keys, values = self.arguments
        rows = [[one[:batch] for one in listed] for listed in (keys, values)]
        return ids, mask, slot, *rows

    def copy(self) -> list[torch.Tensor]:
        return [one.clone() for one in (*self.arguments[3], *self.arguments[4])]

    def restore(self, before: list[torch.Tensor]) -> None:
        for one, old in zip(
            (*self.arguments[3], *self.arguments[4]), before, strict=True
        ):
            one.copy_(old)


def agrees(step: Executor, toy: Toy, server: Server, batch: int) -> torch.Tensor:
    """Run a step; its result and its cache must be those of the model."""
    arguments = server.step(batch)
    before = server.copy()
    with torch.no_grad():
        expected = toy(*arguments)
    after = server.copy()
    server.restore(before)
    given = step(*arguments)
    torch.testing.assert_close(given, expected)
    for one, other in zip(server.copy(), after, strict=True):
        torch.testing.assert_close(one, other)
    return given


def test_every_size_is_recorded_once_and_then_replayed(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    server = Server(4)
    for batch in (4, 2, 4, 2, 4, 4):
        agrees(step, toy, server, batch)
    assert len(backend.graphs) == 2
    assert backend.replays == [0, 1, 0, 0]
    # Every replay, and every recording: it fills the memory that all graphs read.
    assert backend.turns == 6


def test_other_sizes_run_as_they_are(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    server = Server(9)
    for batch in (1, 3, 5, 9):
        agrees(step, toy, server, batch)
    assert backend.graphs == []
    assert str(step.report()).count("not captured yet") == 2


def test_results_stay_when_later_steps_run(step: Executor, toy: Toy) -> None:
    server = Server(4)
    made = [agrees(step, toy, server, batch) for batch in (4, 2) * 4]
    copies = [one.clone() for one in made]
    for batch in (2, 4, 4):
        agrees(step, toy, server, batch)
    for one, copy in zip(made, copies, strict=True):
        assert torch.equal(one, copy)


def test_a_state_is_written_once_by_the_first_step(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    server = Server(4)
    arguments = server.step(4)
    counted: list[str] = []
    real = type(step).step

    def counting(self: Executor, *given: Any) -> Any:
        counted.append("recorded" if backend.recording else "run")
        return real(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(step), "step", counting)
        step(*arguments)
        step(*arguments)
    assert counted == ["run", "recorded"]


def test_the_size_of_an_empty_piece_captures_sequential(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch, backend: FakeGraphs
) -> None:
    capture = Capture({"batch": (1,)}, in_place=IN_PLACE)
    step = loaded(halves, toy, monkeypatch, backend, capture)
    server = Server(1)
    agrees(step, toy, server, 1)
    agrees(step, toy, server, 1)
    assert backend.replays == [0]
    assert step.report().sizes[0].step == "sequential"


def test_another_cache_runs_uncaptured_and_says_so_once(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    server, other = Server(4), Server(4)
    agrees(step, toy, server, 4)
    with pytest.warns(RuntimeWarning, match=r"`keys\[0\]` lies elsewhere"):
        agrees(step, toy, other, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agrees(step, toy, other, 4)
        agrees(step, toy, server, 4)
    assert backend.replays == [0]


def test_released_graphs_are_made_anew(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    server, other = Server(4), Server(4)
    agrees(step, toy, server, 4)
    step.release()
    agrees(step, toy, other, 4)
    agrees(step, toy, other, 4)
    assert len(backend.graphs) == 2
    assert backend.replays == [1]


def test_inside_a_capture_of_the_caller_nothing_is_recorded(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    server = Server(4)
    backend.elsewhere = True
    agrees(step, toy, server, 4)
    assert backend.graphs == []


def test_too_little_memory_is_said_before_recording(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    backend.free = 10
    server = Server(4)
    with pytest.warns(RuntimeWarning, match=r"batch = 4 .* take about 0.0 MB"):
        agrees(step, toy, server, 4)
    agrees(step, toy, server, 4)
    assert backend.graphs == []
    assert "batch = 4: not captured" in str(step.report())


def test_why_steps_replay_no_graph(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    said = str(step.uncaptured({"batch": 4}))
    assert (
        said == "steps of batch = 4 are not captured: they have not been captured yet"
    )
    agrees(step, toy, Server(4), 4)
    assert step.uncaptured({"batch": 4}) is None
    agrees(step, toy, Server(9), 9)
    larger = step.uncaptured({"batch": 9})
    assert larger is not None
    assert (larger.asked, larger.reason) == (
        False,
        "no captured size can stand for it",
    )
    backend.free = 10
    with pytest.warns(RuntimeWarning, match="batch = 2 are not captured"):
        agrees(step, toy, Server(2), 2)
    refused = step.uncaptured({"batch": 2})
    assert refused is not None
    assert refused.asked
    assert "0.0 MB are free" in refused.reason


# ---- padding -------------------------------------------------------------------------


def test_a_smaller_step_runs_in_the_first_rows_of_the_next_size(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch, backend: FakeGraphs
) -> None:
    step = loaded(halves, toy, monkeypatch, backend, PADDED)
    server = Server(4)
    agrees(step, toy, server, 4)
    arguments = server.step(3)
    before = server.copy()
    with torch.no_grad():
        expected = toy(*arguments)
    rows = [one[:3].clone() for one in server.copy()]
    server.restore(before)
    given = step(*arguments)
    assert given.shape == expected.shape
    torch.testing.assert_close(given, expected)
    for one, other in zip(server.copy(), rows, strict=True):
        torch.testing.assert_close(one[:3], other)
    assert backend.replays == [0]


def test_nothing_is_padded_without_leave(
    step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    server = Server(4)
    agrees(step, toy, server, 4)
    agrees(step, toy, server, 3)
    assert backend.replays == []


def test_rows_that_are_not_known_to_be_there_are_not_written(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch, backend: FakeGraphs
) -> None:
    step = loaded(halves, toy, monkeypatch, backend, PADDED)
    agrees(step, toy, Server(4), 4)
    # A cache of three rows, behind which is memory of somebody else.
    sentinel = Server(4)
    before = [one[3:].clone() for one in sentinel.copy()]
    agrees(step, toy, sentinel, 3)
    for one, other in zip(sentinel.copy(), before, strict=True):
        assert torch.equal(one[3:], other)
    assert backend.replays == []


def test_larger_steps_are_never_cut(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch, backend: FakeGraphs
) -> None:
    step = loaded(halves, toy, monkeypatch, backend, PADDED)
    server = Server(5)
    agrees(step, toy, server, 4)
    agrees(step, toy, server, 5)
    assert backend.replays == []


# ---- parts that no graph can hold ----------------------------------------------------


def test_a_part_that_blocks_is_named_before_anything_is_recorded(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeGraphs(blocking=frozenset({INDEX_COPY}))
    step = loaded(halves, toy, monkeypatch, backend)
    server = Server(4)
    with pytest.warns(RuntimeWarning, match=r"in the part `attn`"):
        agrees(step, toy, server, 4)
    agrees(step, toy, server, 4)
    assert backend.graphs == []


@pytest.mark.parametrize("name", ["halves", "lanes"])
def test_pieces_are_captured_around_parts_that_block(
    name: str, toy: Toy, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    module = request.getfixturevalue(name)
    backend = FakeGraphs(blocking=frozenset({INDEX_COPY}))
    capture = Capture({"batch": (2, 4)}, in_place=IN_PLACE, pieces=True)
    step = loaded(module, toy, monkeypatch, backend, capture)
    server = Server(4)
    for batch in (4, 2, 4, 2, 4):
        agrees(step, toy, server, batch)
    (first, second) = step.report().sizes
    assert first.between == second.between == ("attn",)
    assert first.graphs > 3
    assert backend.replays


def test_a_failed_recording_leaves_the_executor_usable(
    step: Executor, toy: Toy, backend: FakeGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(4)
    real = type(step).step

    def failing(self: Executor, *given: Any) -> Any:
        if backend.recording:
            raise RuntimeError("operation failed due to a previous error")
        return real(self, *given)

    monkeypatch.setattr(type(step), "step", failing)
    with pytest.warns(RuntimeWarning, match=r"batch = 4 are not captured .*previous"):
        agrees(step, toy, server, 4)
    assert not backend.recording
    agrees(step, toy, server, 4)
    agrees(step, toy, server, 3)


def test_the_report(step: Executor, toy: Toy) -> None:
    agrees(step, toy, Server(4), 4)
    report = step.report()
    (size,) = report.sizes
    assert (size.sizes, size.step, size.estimated) == ("batch = 4", "step", 1000)
    assert size.outputs == 4 * 32 * 4
    assert size.nodes.kernels > 10
    # Of four rows: ids and mask; of every step: the slot.
    assert report.inputs == 4 * 8 + 4 * 12 + 8
    assert report.waiting == ("batch = 2",)
    assert "batch = 2: not captured yet" in str(report)


# ---- memory of the graph's -----------------------------------------------------------


def test_lent_outputs_are_those_of_the_last_step(
    halves: ModuleType,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    backend: FakeGraphs,
) -> None:
    step = loaded(halves, toy, monkeypatch, backend, outputs="lent")
    server = Server(4)
    agrees(step, toy, server, 4)
    one = agrees(step, toy, server, 4)
    other = agrees(step, toy, server, 4)
    assert one.data_ptr() == other.data_ptr()
    (size,) = step.report().sizes
    assert size.outputs == 0


def test_outputs_are_own_or_lent(halves: ModuleType, toy: Toy) -> None:
    with pytest.raises(ValueError, match="not 'mine'"):
        halves.load(toy, outputs="mine")


@pytest.mark.parametrize("batch", [4, 3])
def test_inputs_in_the_memory_of_the_graph_are_not_copied(
    batch: int,
    halves: ModuleType,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    backend: FakeGraphs,
) -> None:
    step = loaded(halves, toy, monkeypatch, backend, PADDED)
    server = Server(4)
    agrees(step, toy, server, 4)
    buffers = step.buffers(batch=batch)
    assert list(buffers) == ["input_ids", "mask", "slot"]
    for seed in range(3):
        ids, mask, slot, keys, values = server.step(batch)
        for name, one in zip(buffers, (ids, mask, slot), strict=True):
            buffers[name].copy_(one)
        buffers["input_ids"].add_(seed).remainder_(7)
        before = server.copy()
        with torch.no_grad():
            expected = toy(buffers["input_ids"].clone(), mask, slot, keys, values)
        server.restore(before)
        given = step(**buffers, keys=keys, values=values)
        torch.testing.assert_close(given, expected)
    assert backend.replays == [0, 0, 0]
    arguments = step.arrange((), {**buffers, "keys": keys, "values": values})
    found = step.replays.find(arguments)  # type: ignore[union-attr]
    assert found is not None
    assert found.fills == ()
    others = server.step(batch)
    step(*others)
    copied = step.replays.find(others)  # type: ignore[union-attr]
    assert copied is not None
    assert len(copied.fills) == 3


def test_buffers_of_sizes_that_are_not_captured(step: Executor, toy: Toy) -> None:
    server = Server(9)
    buffers = step.buffers(batch=9)
    for name, one in zip(buffers, server.step(9), strict=False):
        buffers[name].copy_(one)
    assert (
        step(**buffers, keys=server.arguments[3], values=server.arguments[4])
        is not None
    )
    assert (
        buffers["input_ids"].data_ptr() != step.buffers(batch=9)["input_ids"].data_ptr()
    )


def test_buffers_are_of_sizes_that_the_module_has(
    halves: ModuleType,
    toy: Toy,
    monkeypatch: pytest.MonkeyPatch,
    backend: FakeGraphs,
) -> None:
    monkeypatch.setattr(halves.ToyHalvesDecode, "dimensions", {"batch": (1, 8)})
    step = loaded(halves, toy, monkeypatch, backend)
    with pytest.raises(InputError, match="a size for each of batch; given none"):
        step.buffers()
    with pytest.raises(InputError, match="a size for each of batch; given rows"):
        step.buffers(rows=3)
    with pytest.raises(InputError, match="traced from 1 to 8, and batch = 0"):
        step.buffers(batch=0)
    for size in ("4", 2.5, True, None):
        with pytest.raises(InputError, match="the size of `batch` is a whole number"):
            step.buffers(batch=size)


# ---- steps that choose by size -------------------------------------------------------


@pytest.fixture
def selected(step: Executor, monkeypatch: pytest.MonkeyPatch) -> Selected:
    """What runs the schedule from three rows upwards."""
    kind = type(step)
    monkeypatch.setattr(kind, "dimensions", {"batch": (1, None)})
    return Selected(
        "decode", lambda batch: kind.step if batch > 2 else kind.sequential, [step]
    )


def test_a_chosen_step_that_comes_again_is_known_without_a_check(
    selected: Selected, step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    arguments = Server(4).step(4)
    first, second = selected(*arguments), selected(*arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(step), "sizes_of", lambda *_: pytest.fail("checked again"))
        third = selected(*arguments)
    assert torch.equal(first, second)
    assert torch.equal(first, third)
    assert backend.replays == [0, 0]


def test_a_graph_that_is_not_chosen_is_not_replayed(
    selected: Selected, step: Executor, toy: Toy, backend: FakeGraphs
) -> None:
    server = Server(4)
    arguments = server.step(2)
    for _ in range(3):
        step(*arguments)
    assert backend.replays == [0, 0]
    selected(*arguments)
    assert backend.replays == [0, 0]
