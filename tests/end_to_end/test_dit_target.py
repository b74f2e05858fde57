"""The diffusion transformer of `diffusers`, where that library is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("diffusers")

from dynaflow_dsl.models import dit
from tests.end_to_end.building import build, run_verify

HALVES = Path(__file__).parents[2] / "schedules" / "dit" / "halves.dfs"


@torch.no_grad()
def test_images_are_denoised_each_at_its_own_time(tmp_path: Path) -> None:
    text = HALVES.read_text(encoding="utf-8")
    spec = dit.denoise(layers=2)
    made = build(spec, text.replace(" into 2 ", " into [3, 2, 2] "), tmp_path)
    for report in run_verify(made, batches=(1, 5, 7)):
        assert report.ok, str(report)
    torch.manual_seed(0)
    latents = torch.randn(7, 4, 8, 8)
    times, labels = torch.tensor([0, 1, 10, 50, 100, 500, 999]), torch.arange(7)
    noise = made.module.load(spec.model, compile=False)(latents, times, labels)
    assert noise.std() > 1e-3
    for row in range(7):
        alone = spec.model(
            latents[row : row + 1],
            timestep=times[row : row + 1],
            class_labels=labels[row : row + 1],
        ).sample
        torch.testing.assert_close(noise[row], alone[0], rtol=1e-4, atol=1e-4)
