"""Steps with random delays on real streams; run with `pytest -m gpu`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.models import llama
from dynaflow_dsl.trace import Entry, TraceSpec
from dynaflow_dsl.verification.stress_report import ENOUGH, StressReport
from dynaflow_dsl.verification.stressed import stress_module
from tests.end_to_end.building import Built, build, halves, run_verify
from tests.verification.mutations import (
    Mutation,
    with_frees_at_readers,
    with_shared_results,
    without_waits,
)

pytestmark = pytest.mark.gpu

BATCH = 32


def built(folder: Path) -> Built:
    spec = llama.decode(
        layers=4, hidden=256, device="cuda", dtype="bfloat16", initializer_range=0.02
    )
    return build(spec, halves(), folder)


def stressed(
    made: Built, module: ModuleType, trials: int, **options: Any
) -> StressReport:
    torch.manual_seed(0)
    return stress_module(
        module,
        made.spec.model,
        made.spec.entries["decode"].arguments({"batch": BATCH}),
        batch=BATCH,
        trials=trials,
        adapter=made.spec.adapted(),
        device="cuda",
        **options,
    )


def test_delays_change_no_bit(tmp_path: Path) -> None:
    made = built(tmp_path)
    report = stressed(made, made.module, 20)
    print(report)
    assert report.ok, str(report)
    assert [run.way for run in report.runs] == ["eager", "captured"]
    assert not report.spread
    for run in report.runs:
        assert run.pairs > 6
        assert run.share >= ENOUGH, str(report)


def broken(text: str) -> list[Mutation]:
    waits = without_waits(text)
    # Each wait of the loop's body: in the first layer a step may be late anyway.
    inside = text.index("for i in range(")
    loop = [one for one in waits if one.text[:inside] == text[:inside]]
    return [
        *loop[:4],
        with_frees_at_readers(text, "attn_0"),
        with_shared_results(text, "attn_1", "attn_0"),
    ]


def test_broken_plans_are_found(tmp_path: Path) -> None:
    made = built(tmp_path)
    text = made.compiled.text
    for number, mutation in enumerate(broken(text)):
        report = stressed(made, made.mutated(mutation.text), 8, compiled=False)
        print(mutation.name, report, sep="\n")
        assert len(report.runs) == 2, str(report)
        for run in report.runs:
            assert run.failures, f"{number}: {mutation.name}\n{report}"
        assert any(
            failure.pair is not None for run in report.runs for failure in run.failures
        ), str(report)


class Count(nn.Module):
    """Adds thousands of numbers into a few places, in whatever order they come."""

    places: torch.Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("places", torch.arange(width) % 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sums = torch.zeros(x.shape[0], 4, dtype=x.dtype, device=x.device)
        return sums.index_add(1, self.places, x)


class Counter(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.count = Count(width)
        self.last = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        counted: torch.Tensor = self.last(self.count(x))
        return counted


COUNTER = """dfs 1

schedule counter:
    stream side

    part count = .count
    part linear on side = .last

    order:
        count
        linear
"""


def test_what_differs_from_itself_is_named(tmp_path: Path) -> None:
    width = 1 << 16
    spec = TraceSpec(
        model=Counter(width).cuda().eval(),
        entries={
            "forward": Entry(
                lambda sizes: (torch.randn(sizes["batch"], width, device="cuda"),)
            )
        },
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 64)},
        device="cuda",
    )
    made = build(spec, COUNTER, tmp_path)
    (report,) = run_verify(made, batches=(4,), compiled=True, device="cuda")
    print(report)
    assert report.ok, str(report)
    assert "aten.index_add" in " ".join(one.because for one in report.comparisons)
