"""Models of a user's own, with what decoders do not have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.end_to_end.building import build, run_verify

SCHEDULE = """dfs 1

schedule stack:
    stream side

    split batch into 2 as half

    each layer in .layers.*:
        part first on side = .a
        part second = rest

        stagger half by 1:
            first
            second
"""


class Layer(nn.Module):
    """Two linear maps; `number` goes into a tensor that the code makes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.a, self.b, self.number = nn.Linear(6, 6), nn.Linear(6, 6), number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.tensor([1.0, 2.0, -1.0, 0.5, 3.0, 0.0])
        shift = torch.tensor(float(self.number // 2))
        return torch.relu(x + self.b(torch.tanh(self.a(x * scale))) + shift)


class Stack(nn.Module):
    def __init__(self, step: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(number) for number in range(3)])
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self, x)


def verified(
    step: Callable[[nn.Module, torch.Tensor], torch.Tensor], folder: Path
) -> str:
    torch.manual_seed(0)
    spec = TraceSpec(
        model=Stack(step).eval(),
        entries={"forward": Entry(lambda sizes: (torch.randn(sizes["batch"], 6),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, None)},
    )
    built = build(spec, SCHEDULE, folder)
    for report in run_verify(built, batches=(1, 2, 5)):
        assert report.ok, str(report)
    return built.compiled.text


def test_tensors_that_the_code_makes(tmp_path: Path) -> None:
    def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for layer in model.layers:
            x = layer(x)
        return x * torch.tensor(float("inf")).clamp(max=2)

    text = verified(step, tmp_path)
    assert (
        "= torch.tensor([1.0, 2.0, -1.0, 0.5, 3.0, 0.0], dtype=torch.float32)" in text
    )
    # Layers whose tensors differ run functions of their own.
    assert "which=(0, 0, 1)" in text


def test_a_state_that_no_input_has(tmp_path: Path) -> None:
    def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.shape[0], 6)
        for layer in model.layers:
            state = layer(state)
        return state + x

    text = verified(step, tmp_path)
    assert "def before(w, x):" in text
    assert "batch = x.shape[0]" in text


def test_nothing_before_and_nothing_after(tmp_path: Path) -> None:
    def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for layer in model.layers:
            x = layer(x)
        return x

    text = verified(step, tmp_path)
    assert "self.before" not in text
    assert "self.after" not in text


def test_the_first_layer_reads_a_view(tmp_path: Path) -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Layer(0) for _ in range(3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = x.view(-1, 6)
            for layer in self.layers:
                rows = layer(rows)
            return rows.view(x.shape)

    spec = TraceSpec(
        model=Rows().eval(),
        entries={"forward": Entry(lambda sizes: (torch.randn(sizes["batch"], 4, 6),))},
        dims={"x": ("batch", None, None)},
        dimensions={"batch": (1, None)},
    )
    built = build(spec, SCHEDULE, tmp_path)
    for report in run_verify(built, batches=(1, 2, 5)):
        assert report.ok, str(report)


TWO_STATES = """dfs 1

schedule states:
    stream side

    each layer in .layers.*:
        part pa on side = .a
        part pb = .b
        part pc = rest

        order:
            pa | pb
            pc
"""


class Pair(nn.Module):
    """Two states; the first is replaced while the second still reads the old one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(6, 6) for _ in range(3))

    def forward(
        self, x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.c(torch.tanh(self.a(x))), y + self.b(x)


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Pair() for _ in range(3)])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        for layer in self.layers:
            x, y = layer(x, y)
        return x, y


def rows_of(model: nn.Module) -> TraceSpec:
    return TraceSpec(
        model=model.eval(),
        entries={"forward": Entry(lambda sizes: (torch.randn(sizes["batch"], 6),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 64)},
    )


def test_the_sequential_order_reads_states_before_it_replaces_them(
    tmp_path: Path,
) -> None:
    built = build(rows_of(Pairs()), TWO_STATES, tmp_path)
    for report in run_verify(built, batches=(1, 3)):
        assert report.ok, str(report)
    executor = built.module.load(built.spec.model, compile=False)
    x = torch.randn(4, 6)
    for made, expected in zip(executor.sequential(x), executor.step(x), strict=True):
        assert torch.equal(made, expected)
    assert 'dimensions = {"batch": (1, 64)}' in built.compiled.text


def test_a_returned_weight_is_refused(tmp_path: Path) -> None:
    class Telling(Pairs):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return *super().forward(x), self.layers[0].a.weight

    with pytest.raises(DiagnosticError, match=r"DFS209.*parameter layers.0.a.weight"):
        build(rows_of(Telling()), TWO_STATES, tmp_path)
