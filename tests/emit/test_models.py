"""Modules of real models: they run as they stand, and equal the model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.trace.model import TraceSpec
from tests.emit.formatting import formatted
from tests.emit.models import (
    HALVES,
    compiled,
    deep_llama,
    family,
    llama_traced,
    written,
)
from tests.simulator.text import judge

CACHES = ("keys", "values")


def check_entry(step: Any, spec: TraceSpec, entry: str, rows: int) -> None:
    """`sequential` equals the model, `step` but for rounding, caches included."""
    torch.manual_seed(rows)
    given = spec.entries[entry].arguments({"batch": rows})
    ours, plain = copy.deepcopy(given), copy.deepcopy(given)
    with torch.no_grad():
        wanted = spec.adapter(spec.model)(*given)
    assert torch.equal(step.sequential(*plain), wanted)
    torch.testing.assert_close(step(*ours), wanted)
    for left, right in zip(ours, given, strict=True):
        torch.testing.assert_close(left, right)


def test_both_entries_of_a_llama(tmp_path: Path) -> None:
    spec, model = llama_traced()
    module = compiled(HALVES, model)
    assert formatted(module.text) == module.text
    step = written(module, tmp_path).load(spec.model, compile=False, check="none")
    for entry in ("decode", "prefill"):
        for rows in (1, 2, 5):
            check_entry(getattr(step, entry), spec, entry, rows)
    for number in (0, 1):
        assert judge(module.text, number, persistent=CACHES) == []


def test_several_schedules_and_entries(tmp_path: Path) -> None:
    spec, model = llama_traced()
    again = HALVES[HALVES.index("schedule") :].replace(
        "schedule halves", "schedule thirds"
    )
    module = compiled(f"{HALVES}\n{again.replace('into 2', 'into [3, 1]')}", model)
    assert formatted(module.text) == module.text
    loaded = written(module, tmp_path).load(spec.model, compile=False, check="none")
    names = ["HalvesDecode", "HalvesPrefill", "ThirdsDecode", "ThirdsPrefill"]
    assert sorted(vars(loaded)) == names
    for number, name in enumerate(names):
        entry = name.removeprefix("Halves").removeprefix("Thirds").lower()
        check_entry(getattr(loaded, name), spec, entry, 5)
        assert judge(module.text, number, persistent=CACHES) == []


@pytest.mark.parametrize("name", ["Gemma2", "SmolLM3"])
def test_layers_that_differ(name: str, tmp_path: Path) -> None:
    """Gemma2 reads alternating masks; SmolLM3 has layers without rotary positions."""
    spec, model = family(name)
    module = compiled(HALVES, model)
    assert formatted(module.text) == module.text
    step = written(module, tmp_path).load(spec.model, compile=False, check="none")
    for rows in (1, 2, 3):
        check_entry(step, spec, "decode", rows)
    assert judge(module.text, persistent=CACHES) == []


def test_two_programs_of_one_part() -> None:
    module = compiled(HALVES, family("SmolLM3")[1])
    bodies = {p.name: len(p.bodies) for p in module.bindings[0].parts}
    assert bodies == {"attn": 2, "mlp": 1}
    assert "which=(0, 0, 0, 1)" in module.text
    assert "def attn(" in module.text
    assert "def attn_2(" in module.text


@pytest.mark.slow
def test_thirty_two_layers_stay_below_400_lines() -> None:
    module = compiled(HALVES, deep_llama())
    assert len(module.text.split("\n")) < 400
    assert formatted(module.text) == module.text
