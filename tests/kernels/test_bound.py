"""The collectives of a model run through kernels that are compared with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.runtime.groups import bind_stand_in, release_group
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.end_to_end.building import build

ROLE, RANKS, WIDTH = "pair", 2, 8

_COLLECTIVES = torch.ops._c10d_functional

SCHEDULE = """dfs 1

kernel gather = "dynaflow_dsl.kernels:copied_all_gather"
kernel exchange = "dynaflow_dsl.kernels:copied_all_to_all"
kernel scatter = "dynaflow_dsl.kernels:copied_reduce_scatter"
kernel reduce = "dynaflow_dsl.kernels:copied_all_reduce"

schedule copied:
    stream comm

    part gathered on comm via gather = .gather
    part exchanged on comm via exchange(ranks = 2, chunks = 3) = .exchange
    part scattered on comm via scatter(ranks = 2) = .scatter
    part reduced on comm via reduce = .reduce
    part between = .scale + .wave

    order:
        gathered
        between
        exchanged
        scattered
        reduced
"""


class Gather(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        started = _COLLECTIVES.all_gather_into_tensor(x, RANKS, ROLE)
        return _COLLECTIVES.wait_tensor(started)


class Exchange(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        each = [x.shape[0] // RANKS] * RANKS
        started = _COLLECTIVES.all_to_all_single(x, each, each, ROLE)
        return _COLLECTIVES.wait_tensor(started)


class Scatter(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        started = _COLLECTIVES.reduce_scatter_tensor(x, "sum", RANKS, ROLE)
        return _COLLECTIVES.wait_tensor(started)


class Reduce(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        started = _COLLECTIVES.all_reduce(x, "sum", ROLE)
        return _COLLECTIVES.wait_tensor(started)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gather, self.exchange = Gather(), Exchange()
        self.scatter, self.reduce = Scatter(), Reduce()
        self.scale, self.wave = nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.exchange(self.wave(self.scale(self.gather(x))))
        return self.reduce(self.scatter(mixed))


def target() -> TraceSpec:
    torch.manual_seed(0)
    return TraceSpec(
        model=Model().eval(),
        entries={"forward": Entry(lambda sizes: (torch.randn(sizes["batch"], WIDTH),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 64)},
    )


@pytest.mark.parametrize(
    ("name", "given"),
    [("exchange", "(ranks = 2, chunks = 3)"), ("scatter", "(ranks = 2)")],
)
def test_where_ranks_decide_shapes_a_schedule_says_how_many(
    name: str, given: str, tmp_path: Path
) -> None:
    schedule = SCHEDULE.replace(f"{name}{given}", name)
    with pytest.raises(DiagnosticError) as caught:
        build(target(), schedule, tmp_path)
    assert caught.value.diagnostics[0].helps[-1] == (
        f"give it what the model has there: via {name}(ranks = ...)"
    )


def test_collectives_run_through_copies(tmp_path: Path) -> None:
    spec = target()
    made = build(spec, SCHEDULE, tmp_path)
    text = made.compiled.text
    calls = re.findall(r"return (\w+)\(tensor=\w+, ((?:\w+=\S+(?:, )?)+)\)", text)
    assert dict(calls) == {
        "gather": 'ranks=2, group="pair"',
        "exchange": 'group="pair", ranks=2, chunks=3',
        "scatter": 'group="pair", ranks=2',
        "reduce": 'group="pair"',
    }
    # Their memory is made on all ranks alike, whatever the collectives ask for.
    assert 'alike = ("batch",)' in text
    bind_stand_in(ROLE, RANKS, 0)
    try:
        step = made.module.load(spec.model, compile=False)
        x = torch.randn(6, WIDTH)
        with torch.inference_mode():
            assert torch.equal(step(x), step.sequential(x))
    finally:
        release_group(ROLE)
