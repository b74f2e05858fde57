"""Captured sizes of schedules among which a `select` chooses, on a fake device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dynaflow_dsl.runtime import Selected
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.end_to_end.building import Built, build
from tests.runtime.fake_graphs import FakeGraphs

TEXT = """dfs 1

select pick:
    when batch == 1: halves
    when batch >= 4: halves
    else: sequential

schedule halves:
    capture batch at [1, 2, 4, 8]
    split batch into 2 as half
    each layer in .layers.*:
        part first = .0
        part second = rest
        stagger half by 1:
            first
            second
"""


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def rows(batch: int) -> Tensor:
    return torch.linspace(-1, 1, 4 * batch).view(batch, 4)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    torch.manual_seed(0)
    spec = TraceSpec(
        model=Stack().eval(),
        entries={"main": Entry(lambda sizes: (rows(sizes["batch"]),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 64)},
    )
    folder: Path = tmp_path_factory.mktemp("captured")
    return build(spec, TEXT, folder)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeGraphs:
    backend = FakeGraphs()
    monkeypatch.setattr("dynaflow_dsl.runtime.load.make_graphs", lambda *_: backend)
    return backend


def loaded(built: Built) -> Selected:
    step: Any = built.module.load(built.spec.model, compile=False)
    assert isinstance(step, Selected)
    return step


def replayed(step: Selected, built: Built, backend: FakeGraphs, batch: int) -> bool:
    """Run a step, which has to be right; whether it was the replay of a graph."""
    before = len(backend.replays)
    with torch.no_grad():
        torch.testing.assert_close(step(rows(batch)), built.spec.model(rows(batch)))
    return len(backend.replays) > before


def test_the_sizes_of_the_step_choose_before_it_is_padded(
    built: Built, backend: FakeGraphs
) -> None:
    step = loaded(built)
    assert [replayed(step, built, backend, 8) for _ in range(2)] == [False, True]
    # Chosen for its own size, and padded to 8.
    assert replayed(step, built, backend, 6)
    # Three rows would fit into eight, but their line says `sequential`, and no captured
    # size above three does.
    assert not replayed(step, built, backend, 3)
    assert not replayed(step, built, backend, 3)


def test_a_size_that_is_chosen_to_run_sequentially_is_captured_as_that(
    built: Built, backend: FakeGraphs
) -> None:
    step = loaded(built)
    assert step.choice(batch=2) == "sequential"
    assert [replayed(step, built, backend, 2) for _ in range(3)] == [False, True, True]
    (size,) = step.report()["halves"].sizes
    assert (size.sizes, size.step) == ("batch = 2", "sequential")
    # The executor by itself runs that size split, in a graph of its own.
    executor = step.executors["halves"]
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(executor(rows(2)), built.spec.model(rows(2)))
    both = [(one.sizes, one.step) for one in executor.report().sizes]
    assert both == [("batch = 2", "step"), ("batch = 2", "sequential")]
    assert replayed(step, built, backend, 2)


def test_buffers_of_a_size_that_runs_sequentially_are_what_its_graph_reads(
    built: Built, backend: FakeGraphs
) -> None:
    step = loaded(built)
    given = step.buffers(batch=2)
    assert given["x"].data_ptr() == step.buffers(batch=2)["x"].data_ptr()
    # Three rows run uncaptured: whoever has them has memory of his own.
    three, again = step.buffers(batch=3)["x"], step.buffers(batch=3)["x"]
    assert three.data_ptr() != again.data_ptr()
    for number in range(3):
        given["x"].copy_(rows(2) + number)
        with torch.no_grad():
            expected = built.spec.model(rows(2) + number)
            torch.testing.assert_close(step(**given), expected)
    assert backend.replays


def test_a_size_with_an_empty_piece_is_captured_as_it_runs(
    built: Built, backend: FakeGraphs
) -> None:
    step = loaded(built)
    assert step.choice(batch=1) == "sequential"
    assert [replayed(step, built, backend, 1) for _ in range(2)] == [False, True]
    (size,) = step.report()["halves"].sizes
    assert (size.sizes, size.step) == ("batch = 1", "sequential")


def test_the_environment_captures_the_parts_in_program_order(
    built: Built, backend: FakeGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFSC_SEQUENTIAL", "1")
    step = loaded(built)
    assert [replayed(step, built, backend, 4) for _ in range(2)] == [False, True]
    assert not replayed(step, built, backend, 3)
    assert [one.step for one in step.report()["halves"].sizes] == ["sequential"]


def test_reports_and_releases_are_those_of_all_schedules(
    built: Built, backend: FakeGraphs
) -> None:
    step = loaded(built)
    replayed(step, built, backend, 4)
    report = step.report()["halves"]
    assert [one.sizes for one in report.sizes] == ["batch = 4"]
    assert report.waiting == ("batch = 1", "batch = 2", "batch = 8")
    step.release()
    assert step.report()["halves"].sizes == ()
    assert [replayed(step, built, backend, 4) for _ in range(2)] == [False, True]


OTHERS = """
schedule whole:
    each layer in .layers.*:
        part all = rest
        order:
            all
"""


def test_a_size_of_another_line_is_skipped_by_padding(
    built: Built, backend: FakeGraphs, tmp_path: Path
) -> None:
    lines = "when batch == 4: whole\n    when batch >= 3: halves"
    text = TEXT.replace("when batch >= 4: halves", lines) + OTHERS
    other = build(built.spec, text, tmp_path)
    step = loaded(other)
    assert [replayed(step, other, backend, 8) for _ in range(2)] == [False, True]
    # Four would be the next captured size, but no step of four is one of this schedule.
    assert replayed(step, other, backend, 3)
    assert not replayed(step, other, backend, 4)
