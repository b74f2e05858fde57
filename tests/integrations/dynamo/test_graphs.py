"""Several graphs of one model: entries, guards, breaks and batches of one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.integrations import report
from dynaflow_dsl.integrations.dynamo.backend import ScheduleWarning
from tests.integrations.dynamo.compiling import compiled
from tests.integrations.dynamo.models import (
    HALVES,
    Stack,
    evaluated,
    without_numbers,
    write,
)


def test_a_batch_of_one_is_too_small_for_pieces(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    for rows in (1, 4, 1):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
    first, second = report().graphs
    assert first.reason == "batch is 1 in it, too few for the pieces of the split"
    assert second.module is not None


def test_a_batch_of_one_is_known_from_earlier_graphs(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path), dims={})
    x = torch.randn(6, 8)
    torch._dynamo.mark_dynamic(x, 0)
    step(x)
    one = torch.randn(1, 8)
    torch.testing.assert_close(step(one), model(one))
    assert report().graphs[1].module is None


def test_a_list_that_layers_share_is_shared_afterwards(tmp_path: Path) -> None:
    """Dynamo guards that it is one list; a copy for each would fail its own guard."""

    class Model(Stack):
        def __init__(self) -> None:
            super().__init__()
            self.kinds = ["twice"]
            for layer in self.layers:
                layer.kinds = self.kinds

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x) * (2 if "twice" in layer.kinds else 1)
            return x

    model = evaluated(Model())
    x = torch.randn(4, 8)
    torch.testing.assert_close(compiled(model, write(tmp_path))(x), model(x))
    assert all(layer.kinds is model.kinds for layer in model.layers)


class Skipping(Stack):
    def forward(self, x: torch.Tensor, skip: bool = False) -> torch.Tensor:
        return x * 2 if skip else super().forward(x)


def test_a_way_around_all_layers_is_inductors(tmp_path: Path) -> None:
    model = evaluated(Skipping())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    for skip in (False, True):
        torch.testing.assert_close(step(x, skip), model(x, skip))
    first, second = report().graphs
    assert first.module is not None
    assert second.reason == "it holds none of the modules that the schedule names"


def test_a_model_whose_layers_never_ran(tmp_path: Path) -> None:
    """Nothing says yet that the schedule is right."""
    step = compiled(evaluated(Skipping()), write(tmp_path))
    with pytest.raises(DiagnosticError) as raised:
        step(torch.randn(4, 8), True)
    assert [each.code for each in raised.value.diagnostics] == ["DFS201"]


def test_another_guard_set_takes_the_executor_that_there_is(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    outside = step(x)
    with torch.inference_mode():
        inside = step(torch.randn(4, 8)), step(x)
    assert torch.equal(outside, inside[1])
    with torch.enable_grad():
        model.requires_grad_(False)
        assert torch.equal(step(x), outside)
    reports = report().graphs
    assert [each.reused for each in reports] == [False, *[True] * (len(reports) - 1)]
    assert len(reports) > 1
    assert {each.module for each in reports} == {"executors/halves.py"}


def test_entries_by_their_fixed_sizes(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x * x.shape[1])

    model = evaluated(Model())
    options = {
        "dims": {"x": ("batch", "tokens", None)},
        "entries": {"decode": {"tokens": 1}, "prefill": {}},
    }
    step = compiled(model, write(tmp_path), **options)
    for tokens in (6, 1, 6):
        x = torch.randn(4, tokens, 8)
        torch.testing.assert_close(step(x), model(x))
    assert [(each.entry, each.module) for each in report().graphs] == [
        ("prefill", "executors/halves_prefill.py"),
        ("decode", "executors/halves_decode.py"),
    ]


def test_graphs_that_differ_are_numbered(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor, twice: bool = False) -> torch.Tensor:
            x = super().forward(x)
            return x * 2 if twice else x

    model = evaluated(Model())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    for twice in (False, True, False):
        torch.testing.assert_close(step(x, twice=twice), model(x, twice=twice))
    assert [(each.entry, each.module) for each in report().graphs] == [
        ("forward", "executors/halves.py"),
        ("forward_2", "executors/halves_forward_2.py"),
    ]


def test_a_graph_break_between_layers(tmp_path: Path) -> None:
    model = evaluated(Stack(breaks_at=2))
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    first, second = report().graphs
    assert (first.entry, second.entry) == ("forward", "forward_2")
    assert first.parts[0] == ("expand", ("layers.0", "layers.1"))
    assert second.parts[0] == ("expand", ("layers.2", "layers.3"))
    assert first.ends is not None
    assert "graph_break" in first.ends
    assert second.begins
    assert "ends in a graph break" in str(report())


def test_a_graph_break_in_front_of_all_layers(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * 2
            torch._dynamo.graph_break()
            return super().forward(x)

    model = evaluated(Model())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    first, second = report().graphs
    assert first.reason == "it holds none of the modules that the schedule names"
    assert second.module is not None


def test_every_size_open(tmp_path: Path) -> None:
    """`dynamic=True` opens sizes that the weights then fix again."""
    model = without_numbers()
    step = torch.compile(
        model,
        backend="dynaflow",
        dynamic=True,
        options={"schedule": write(tmp_path), "compile": False},
    )
    for rows in (5, 9):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
    (graph,) = report().graphs
    assert graph.module is not None


def test_a_second_size_opens_the_dimension(tmp_path: Path) -> None:
    """Without strictness the first graph is Inductor's, and the second is scheduled."""
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path), dims={}, strict=False)
    with pytest.warns(ScheduleWarning, match="has an axis batch"):
        step(torch.randn(4, 8))
    x = torch.randn(6, 8)
    torch.testing.assert_close(step(x), model(x))
    assert [each.module is None for each in report().graphs] == [True, False]


def test_a_select_decides_by_the_size_of_a_step(tmp_path: Path) -> None:
    text = HALVES + (
        "\nselect by_size:\n    when batch >= 6: halves\n    else: sequential\n"
    )
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path, text))
    for rows in (4, 8, 1):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
    assert report().graphs[0].module == "executors/by_size.py"


def test_a_select_decides_by_the_entry(tmp_path: Path) -> None:
    """Graphs come one by one: lines for the others are no mistake."""
    text = HALVES + (
        "\nselect by_phase:\n    when phase == prefill: halves\n    else: sequential\n"
    )

    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x * x.shape[1])

    model = evaluated(Model())
    options = {
        "dims": {"x": ("batch", "tokens", None)},
        "entries": {"decode": {"tokens": 1}, "prefill": {}},
    }
    step = compiled(model, write(tmp_path, text), **options)
    for tokens in (6, 1):
        x = torch.randn(4, tokens, 8)
        torch.testing.assert_close(step(x), model(x))
    prefill, decode = report().graphs
    assert prefill.module == "executors/by_phase_prefill.py"
    assert [name for name, _ in prefill.parts] == ["expand", "reduce"]
    assert decode.module == "executors/by_phase_decode.py"
    assert "split = " not in Path("executors/by_phase_decode.py").read_text()
