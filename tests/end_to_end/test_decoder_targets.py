"""Every decoder target in three uneven pieces: logits of prompts and 32 steps."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from dynaflow_dsl.models import deepseek_v2
from dynaflow_dsl.models.family import Family
from tests.end_to_end.building import Built, build, run_verify
from tests.end_to_end.stepping import alone, by_steps, random_prompts

SCHEDULES = Path(__file__).parents[2] / "schedules"
STEPS, CAPACITY, SEQUENCE = 32, 42, 8
LENGTHS = (8, 1, 5, 7, 3, 2, 8)

# A schedule of the shipped library, and sizes beside the tiny ones.
FAMILIES: dict[str, tuple[str, dict[str, int]]] = {
    "llama": ("llama", {}),
    "qwen2": ("llama", {}),
    "qwen3": ("llama", {"head_width": 24}),
    "mistral": ("llama", {"window": 12}),
    "gemma2": ("gemma", {"window": 12}),
    "gemma3": ("gemma", {"window": 12}),
    "gpt2": ("gpt2", {}),
    "gpt_oss": ("moe", {"window": 12}),
    "mixtral": ("moe", {}),
    "qwen3_moe": ("moe", {}),
    "deepseek_v2": ("deepseek", {}),
    "deepseek_v3": ("deepseek", {}),
}
WINDOWED = ("mistral", "gemma2", "gemma3", "gpt_oss")


def built(name: str, folder: Path, layers: int = 2) -> Built:
    schedule, sizes = FAMILIES[name]
    text = (SCHEDULES / schedule / "halves.dfs").read_text(encoding="utf-8")
    assert " into 2 " in text
    spec = import_module(f"dynaflow_dsl.models.{name}").serve(
        layers=layers, vocab=96, capacity=CAPACITY, sequence=SEQUENCE, **sizes
    )
    return build(spec, text.replace(" into 2 ", " into [3, 2, 2] "), folder)


def model_of(made: Built) -> PreTrainedModel:
    assert isinstance(made.spec.model, PreTrainedModel)
    return made.spec.model


def stepped(made: Built, module: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the scheduled steps, and of the untouched model."""
    model = model_of(made)
    executor = (module or made.module).load(model, compile=False)
    prompts = random_prompts(LENGTHS, 96)
    logits, texts = by_steps(executor, model, prompts, STEPS, CAPACITY)
    return logits, alone(model, texts, STEPS)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_the_untouched_model(name: str, tmp_path: Path) -> None:
    made = built(name, tmp_path)
    logits, expected = stepped(made)
    assert logits.shape == (len(LENGTHS), STEPS + 1, 96)
    assert expected.std() > 0.1, "logits are so equal that nothing is compared"
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    for report in run_verify(made, batches=(1, 5)):
        assert report.ok, str(report)


@pytest.mark.slow
def test_compiled_parts(tmp_path: Path) -> None:
    """A dense layer and one with experts, with rotations of complex numbers."""
    text = (SCHEDULES / "deepseek" / "halves.dfs").read_text(encoding="utf-8")
    spec = deepseek_v2.decode(layers=2, vocab=96, capacity=CAPACITY)
    for report in run_verify(build(spec, text, tmp_path), batches=(5,), compiled=True):
        assert report.ok, str(report)


@pytest.mark.parametrize("name", WINDOWED)
@torch.no_grad()
def test_the_windows_of_these_targets_are_narrower_than_the_text(name: str) -> None:
    """Else the test above would say nothing of their masks."""
    module = import_module(f"dynaflow_dsl.models.{name}")
    narrow, wide = (
        module.decode(layers=2, vocab=96, capacity=CAPACITY, window=window).model
        for window in (12, 64)
    )
    text = random_prompts((STEPS + SEQUENCE,), 96)
    one, other = alone(narrow, text, 38)[0], alone(wide, text, 38)[0]
    # The first place at which a window of twelve hides something is the thirteenth.
    torch.testing.assert_close(one[:11], other[:11])
    assert ((one[14:] - other[14:]).abs().amax(-1) > 1e-2).all()


def test_exchanged_masks_are_seen(tmp_path: Path) -> None:
    """Gemma's layers take turns; a layer with the other mask says other things."""
    made = built("gemma3", tmp_path, layers=4)
    # The library calls its masks "result".
    masks = re.compile(r"\((result\w*), (result\w*)\)\[i % 2\]")
    wrong, count = masks.subn(r"(\2, \1)[i % 2]", made.compiled.text)
    assert count
    logits, expected = stepped(made, made.mutated(wrong))
    assert not torch.allclose(logits, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", FAMILIES)
def test_published_shapes_have_the_published_number_of_parameters(name: str) -> None:
    module = import_module(f"dynaflow_dsl.models.{name}")
    (family,) = (one for one in vars(module).values() if isinstance(one, Family))
    assert set(family.published) == set(PARAMETERS[name])
    for size, expected in PARAMETERS[name].items():
        with torch.device("meta"):
            model = family.model(family.configuration({"size": size}, 64))
        count = sum(one.numel() for one in model.parameters())
        assert count == expected, (name, size, count)


# As the weights on the Hub have them; without the layers for several tokens at once,
# which the class of DeepSeek-V3 leaves out.
PARAMETERS = {
    "llama": {"8b": 8_030_261_248, "70b": 70_553_706_496},
    "qwen2": {"7b": 7_615_616_512},
    "qwen3": {"8b": 8_190_735_360},
    "mistral": {"7b": 7_241_732_096},
    "gemma2": {"2b": 2_614_341_888, "9b": 9_241_705_984},
    "gemma3": {"1b": 999_885_952},
    "gpt2": {"124m": 124_439_808, "1.5b": 1_557_611_200},
    "gpt_oss": {"20b": 20_914_757_184, "120b": 116_829_156_672},
    "mixtral": {"8x7b": 46_702_792_704},
    "qwen3_moe": {"30b-a3b": 30_532_122_624},
    "deepseek_v2": {"lite": 15_706_484_224},
    "deepseek_v3": {"671b": 671_026_404_352},
}
