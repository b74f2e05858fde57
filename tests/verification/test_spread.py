"""Operations that give other bits each time are named, and others are not excused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.trace import Entry, TraceSpec
from dynaflow_dsl.verification.results import Result
from dynaflow_dsl.verification.spread import FACTOR, find_spread
from dynaflow_dsl.verification.stressed import stress_module
from tests.end_to_end.building import Built, build, run_verify


@pytest.fixture(scope="module")
def shaky() -> Iterator[Any]:
    """`shaky::last` adds to its input what may differ in the last bits."""
    calls = iter(range(10**6))
    library = torch.library.Library("shaky", "DEF")
    library.define("last(Tensor x) -> Tensor")
    library.impl("last", lambda x: x * (1 + 1e-7 * (next(calls) % 3)), "CPU")
    library.impl("last", torch.empty_like, "Meta")
    yield torch.ops.shaky.last
    library._destroy()


class Shaky(nn.Module):
    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = Last(operator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.second(self.first(x))
        return made


class Last(nn.Module):
    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.operator(x)
        return made


SCHEDULE = """dfs 1

schedule shaking:
    stream side

    part first on side = .first
    part second = .second

    order:
        first
        second
"""


@pytest.fixture
def made(shaky: Any, tmp_path: Path) -> Built:
    torch.manual_seed(0)
    spec = TraceSpec(
        model=Shaky(shaky).eval(),
        entries={"forward": Entry(lambda sizes: (torch.randn(sizes["batch"], 16),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 64)},
    )
    return build(spec, SCHEDULE, tmp_path)


def test_the_operation_is_named_and_its_spread_is_the_measure(made: Built) -> None:
    (report,) = run_verify(made, batches=(4,))
    text = report.comparisons[0]
    assert report.ok, str(report)
    assert text.tolerance is not None
    assert 0.0 < text.tolerance < 1e-5
    assert "shaky.last.default in second (not listed by PyTorch)" in text.because
    assert "one stream differs from itself by" in str(report)


def test_more_than_the_spread_is_a_difference(made: Built) -> None:
    text = made.compiled.text.replace(
        "shaky.last.default(first)", "shaky.last.default(first) * 1.001"
    )
    assert text != made.compiled.text
    (report,) = run_verify(made, module=made.mutated(text), batches=(4,))
    compared = report.comparisons[0]
    assert not compared.ok
    assert "NOT equal within" in str(compared)


def test_stress_takes_the_spread_too(made: Built) -> None:
    report = stress_module(
        made.module,
        made.spec.model,
        (torch.randn(4, 16),),
        batch=4,
        trials=4,
    )
    assert report.ok, str(report)
    assert "shaky.last.default in second" in report.spread


def results(*values: float) -> Sequence[Result]:
    return [Result([torch.tensor([value, 1.0])], {}) for value in values]


def test_a_run_that_equals_itself_has_no_spread() -> None:
    first, *others = results(0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
    again = iter(others)
    assert find_spread(lambda: next(again), first, lambda: ["never asked"]) is None


def test_the_largest_distance_counts() -> None:
    first, *others = results(0.5, 0.5, 0.5, 0.625, 0.5, 0.5)
    again = iter(others)
    spread = find_spread(lambda: next(again), first, lambda: ["x in y"])
    assert spread is not None
    assert spread.largest == 0.125
    assert spread.allowed == FACTOR * 0.125
    assert str(spread) == "one stream differs from itself by 1.2e-01: x in y"
