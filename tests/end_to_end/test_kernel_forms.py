"""Kernels where layers differ, kernels that write, and ones over joined pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.diagnostics import DiagnosticError, render
from dynaflow_dsl.runtime import kernel
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.end_to_end.building import build, run_verify


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def keep(rows: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    cache.add_(rows)
    return rows * cache


norm_kernel = kernel(reference=rms_norm, mutates=())(rms_norm)


@kernel(reference=keep, mutates=("cache",))
def keep_kernel(rows: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    cache += rows
    return cache * rows


silent_kernel = kernel(reference=keep, mutates=())(keep)


class Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)


class Keep(nn.Module):
    def forward(self, rows: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        return keep(rows, cache)


class Layer(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.norm = Norm(width, eps)
        self.keep = Keep()
        self.up = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        return x + self.up(self.keep(self.norm(x), cache))


class Model(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, eps) for eps in (1e-3, 0.25, 1e-3))

    def forward(self, x: torch.Tensor, caches: list[torch.Tensor]) -> torch.Tensor:
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache)
        return x


def spec() -> TraceSpec:
    torch.manual_seed(0)

    def arguments(sizes: Any) -> tuple[Any, ...]:
        rows = sizes["batch"]
        return torch.randn(rows, 8), [torch.randn(rows, 8) for _ in range(3)]

    return TraceSpec(
        model=Model().eval(),
        entries={"run": Entry(arguments)},
        dims={"x": ("batch", None), "caches.*": ("batch", None)},
        dimensions={"batch": (1, 64)},
    )


def text(norm: str, kept: str, timeline: str) -> str:
    return f"""dfs 1

kernel rms = "{__name__}:norm_kernel"
kernel kept = "{__name__}:{kept}"

schedule written:
    stream side
    split batch into 2 as half
    each layer in .layers.*:
        part norm on side{norm} = .norm
        part keep via kept = .keep
        part up on side = rest
        order:
            {timeline}
"""


PIECES = """norm[0]
            norm[1] | keep[0]
            up[0] | keep[1]
            up[1]"""


def test_each_program_of_a_part_has_its_own_numbers(tmp_path: Path) -> None:
    built = build(spec(), text(" via rms", "keep_kernel", PIECES), tmp_path)
    assert "eps=0.001" in built.compiled.text
    assert "eps=0.25" in built.compiled.text
    assert "mutates" not in built.compiled.text
    (report,) = run_verify(built, batches=(1, 5))
    assert report.ok, str(report)
    assert [trial.calls for trial in report.kernels] == [6, 6]


def test_a_kernel_may_run_over_joined_pieces(tmp_path: Path) -> None:
    apart = "norm[0]\n            norm[1] | "
    timeline = PIECES.replace(apart, "norm[*]\n            ")
    built = build(spec(), text(" via rms", "keep_kernel", timeline), tmp_path)
    (report,) = run_verify(built, batches=(4,))
    assert report.ok, str(report)
    assert report.kernels[0].calls == 3


def test_writes_that_are_not_declared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError) as refused:
        build(spec(), text(" via rms", "silent_kernel", PIECES), tmp_path)
    message = render(refused.value.diagnostics)
    assert "the reference of kernel 'kept' writes 'cache', and the kernel" in message
