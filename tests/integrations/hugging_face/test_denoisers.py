"""Pipelines of `diffusers` whose transformer is scheduled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diffusers")

from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DiTPipeline,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    StableDiffusion3Pipeline,
)
from diffusers.models.attention_processor import JointAttnProcessor2_0

from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.integrations.diffusers import (
    report,
    schedule,
    scheduled,
    unschedule,
)
from dynaflow_dsl.integrations.errors import ScheduleError
from dynaflow_dsl.models import dit, flux, sd3
from tests.end_to_end.building import build

SCHEDULES = Path(__file__).parents[3] / "schedules"
STREAMS = SCHEDULES / "diffusers" / "streams.dfs"
GUIDANCE = SCHEDULES / "diffusers" / "guidance.dfs"

Draw = Callable[..., torch.Tensor]


def texts(rows: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    return {
        "prompt_embeds": torch.randn(rows, 6, 24, generator=generator),
        "pooled_prompt_embeds": torch.randn(rows, 16, generator=generator),
    }


def stable_diffusion(model: Any) -> Draw:
    pipe = StableDiffusion3Pipeline(
        transformer=model,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        **dict.fromkeys(
            (
                "vae",
                "text_encoder",
                "tokenizer",
                "text_encoder_2",
                "tokenizer_2",
                "text_encoder_3",
                "tokenizer_3",
            )
        ),
    )
    pipe.set_progress_bar_config(disable=True)

    def draw(side: int = 64, rows: int = 2, **options: Any) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        negative = {f"negative_{n}": t for n, t in texts(rows, generator).items()}
        images: torch.Tensor = pipe(
            **texts(rows, generator),
            **negative,
            **{"guidance_scale": 4.0, "num_inference_steps": 3, **options},
            height=side,
            width=side,
            output_type="latent",
            generator=generator,
        ).images
        return images

    return draw


def flow(model: Any) -> Draw:
    names = ("vae", "text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2")
    pipe = FluxPipeline(
        transformer=model,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        **dict.fromkeys(names),
    )
    pipe.set_progress_bar_config(disable=True)

    def draw() -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        images: torch.Tensor = pipe(
            **texts(2, generator),
            num_inference_steps=3,
            height=64,
            width=64,
            output_type="latent",
            generator=generator,
        ).images
        return images

    return draw


def classes(model: Any) -> Draw:
    vae = AutoencoderKL(
        latent_channels=4, block_out_channels=(8,), norm_num_groups=4
    ).eval()
    pipe = DiTPipeline(transformer=model, vae=vae, scheduler=DDIMScheduler())
    pipe.set_progress_bar_config(disable=True)

    def draw() -> torch.Tensor:
        images = pipe(
            [1, 5],
            guidance_scale=4.0,
            num_inference_steps=3,
            output_type="np",
            generator=torch.Generator().manual_seed(0),
        ).images
        return torch.from_numpy(images)

    return draw


PIPELINES: dict[str, tuple[Callable[[], Any], Callable[[Any], Draw], Path]] = {
    "sd3, streams": (lambda: sd3.denoise(layers=3).model, stable_diffusion, STREAMS),
    "sd3, guidance": (lambda: sd3.denoise(layers=3).model, stable_diffusion, GUIDANCE),
    "flux, streams": (
        lambda: flux.denoise(layers=2, single_layers=1).model,
        flow,
        STREAMS,
    ),
    "flux, halves": (
        lambda: flux.denoise(layers=2, single_layers=1).model,
        flow,
        GUIDANCE,
    ),
    "dit, guidance": (
        lambda: dit.denoise(layers=2, labels=1000).model,
        classes,
        SCHEDULES / "dit" / "halves.dfs",
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_whole_pipeline(name: str) -> None:
    make, pipeline, path = PIPELINES[name]
    model = make()
    draw = pipeline(model)
    expected = draw()
    with scheduled(model, path, compile=False, strict=True):
        torch.testing.assert_close(draw(), expected, rtol=1e-4, atol=1e-4)
        assert report(model).steps == {"denoise": 3}
    assert "forward" not in vars(model)
    assert torch.equal(draw(), expected)


@pytest.mark.slow
def test_a_compiled_pipeline(tmp_path: Path) -> None:
    model = sd3.denoise(layers=2).model
    draw = stable_diffusion(model)
    expected = draw()
    with scheduled(model, GUIDANCE, cache=tmp_path, strict=True):
        torch.testing.assert_close(draw(), expected, rtol=1e-4, atol=1e-4)


def test_other_sizes_are_traced_again_and_other_numbers_of_rows_are_not() -> None:
    model = sd3.denoise(layers=2).model
    draw = stable_diffusion(model)
    sizes: list[dict[str, Any]] = [
        {"side": 64},
        {"side": 48},
        {"side": 64, "rows": 3},
        {"side": 48, "guidance_scale": 1.0},
    ]
    expected = [draw(**size) for size in sizes]
    schedule(model, STREAMS, compile=False, strict=True)
    for size, images in zip(sizes, expected, strict=True):
        torch.testing.assert_close(draw(**size), images, rtol=1e-4, atol=1e-4)
    assert report(model).modules == ("in memory", "in memory")
    unschedule(model)


def test_a_module_that_was_committed(tmp_path: Path) -> None:
    model = sd3.denoise(layers=2).model
    draw = stable_diffusion(model)
    expected = draw()
    with scheduled(model, STREAMS, folder=tmp_path, write=True, compile=False):
        draw()
    written = (tmp_path / "joint_streams.py").read_bytes()
    for folder in (tmp_path, tmp_path):
        with scheduled(model, STREAMS, folder=folder, compile=False, strict=True):
            torch.testing.assert_close(draw(), expected, rtol=1e-4, atol=1e-4)
            (file,) = report(model).modules
            assert file.endswith("joint_streams.py")
    assert (tmp_path / "joint_streams.py").read_bytes() == written


def test_a_module_that_was_imported_has_sizes_of_its_own(tmp_path: Path) -> None:
    spec = sd3.denoise(layers=2)
    made = build(spec, STREAMS.read_text(encoding="utf-8"), tmp_path)
    draw = stable_diffusion(spec.model)
    expected = draw(), draw(side=48)
    with scheduled(spec.model, made.module, compile=False):
        torch.testing.assert_close(draw(), expected[0], rtol=1e-4, atol=1e-4)
        with pytest.warns(RuntimeWarning, match="the module was made for other sizes"):
            assert torch.equal(draw(side=48), expected[1])
        assert report(spec.model).steps == {"denoise": 3}


class Doubled(JointAttnProcessor2_0):
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        image, text = super().__call__(*arguments, **named)
        return 2 * image, text


def test_calls_that_are_no_steps() -> None:
    model, other = sd3.denoise(layers=2).model, sd3.denoise(layers=2).model
    draw, by_itself = stable_diffusion(model), stable_diffusion(other)
    schedule(model, STREAMS, compile=False)
    scale = {"joint_attention_kwargs": {"scale": 0.5}}
    with pytest.warns(RuntimeWarning, match="called with `joint_attention_kwargs`"):
        assert torch.equal(draw(**scale), by_itself(**scale))
    draw()
    for each in (model, other):
        each.set_attn_processor(Doubled())
    with pytest.warns(RuntimeWarning, match="its attention was changed"):
        changed = draw()
    assert torch.equal(changed, by_itself())


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="a Linear is no model of diffusers"):
        schedule(torch.nn.Linear(1, 1), STREAMS)  # type: ignore[type-var]
    vae = AutoencoderKL(latent_channels=4, block_out_channels=(8,), norm_num_groups=4)
    message = "how a AutoencoderKL is called is not known, as it is of DiTTrans"
    with pytest.raises(ScheduleError, match=message):
        schedule(vae, STREAMS)
    spec = sd3.denoise(layers=2)
    with pytest.raises(ScheduleError, match=r"call `model\.eval\(\)` first"):
        schedule(sd3.denoise(layers=2).model.train(), STREAMS)
    wrong = tmp_path / "wrong.dfs"
    wrong.write_text("dfs 1\n\nschedule wrong\n")
    with pytest.raises(DiagnosticError, match="DFS010"):
        schedule(spec.model, wrong)
    whole = "    part p = .transformer_blocks\n\n    order:\n        p\n"
    text = f"dfs 1\n\nschedule all:\n{whole}"
    made = build(flux.denoise(), text, tmp_path)
    with pytest.raises(ScheduleError, match="is not for denoising steps of a SD3"):
        schedule(spec.model, made.module)
    assert "forward" not in vars(spec.model)
