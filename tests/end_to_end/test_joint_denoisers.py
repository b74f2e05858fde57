"""Transformers of two streams, where `diffusers` is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diffusers")

from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.models import flux, sd3
from tests.end_to_end.building import build, run_verify

SCHEDULES = Path(__file__).parents[2] / "schedules" / "diffusers"

TARGETS = {
    "sd3": sd3.denoise,
    "sd3, attending twice": lambda: sd3.denoise(layers=4, heads=2, dual=3),
    "flux": flux.denoise,
}


@torch.no_grad()
@pytest.mark.parametrize("name", TARGETS)
def test_images_are_denoised_each_by_its_own_text(name: str, tmp_path: Path) -> None:
    text = (SCHEDULES / "guidance.dfs").read_text(encoding="utf-8")
    spec = TARGETS[name]()
    made = build(spec, text.replace(" into 2 ", " into [3, 2, 2] "), tmp_path)
    for report in run_verify(made, batches=(1, 5, 7)):
        assert report.ok, str(report)
    torch.manual_seed(0)
    arguments: Any = spec.entries["denoise"].arguments({"batch": 7})
    noise = made.module.load(spec.model, compile=False)(*arguments)
    assert noise.std() > 1e-2
    adapter = spec.adapted()
    names = list(made.compiled.plans[0].plan.binding.graph.signature)
    for row in range(7):
        alone = adapter(
            *(
                value[row : row + 1] if label in spec.dims else value
                for (label, _), value in zip(names, arguments, strict=True)
            )
        )
        torch.testing.assert_close(noise[row], alone[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", TARGETS)
def test_streams_of_text_and_image_are_unordered(name: str, tmp_path: Path) -> None:
    text = (SCHEDULES / "streams.dfs").read_text(encoding="utf-8")
    made = build(TARGETS[name](), text, tmp_path)
    (report,) = run_verify(made, batches=(1, 3))
    assert report.ok, str(report)
    assert "unordered: image | text" in str(report)
    assert "unordered: image_in | text_in" in str(report)


def test_blocks_that_attend_twice_are_an_each_of_their_own(tmp_path: Path) -> None:
    text = (SCHEDULES / "streams.dfs").read_text(encoding="utf-8")
    spec = sd3.denoise(dual=2)
    with pytest.raises(DiagnosticError, match=r"error\[DFS205\]: image_in differs"):
        build(spec, text, tmp_path)
    made = build(spec, text.replace("having .ff_context", "having .attn2"), tmp_path)
    (report,) = run_verify(made, batches=(2,))
    assert report.ok, str(report)
