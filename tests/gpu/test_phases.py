"""Steps that are cut by phase, on a real device; run with `pytest -m gpu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.models import llama
from dynaflow_dsl.runtime import Executor
from tests.end_to_end.building import build

pytestmark = pytest.mark.gpu

SCHEDULE = """dfs 1

schedule phased:
    stream side
    split tokens into [decode, prefill] as phase
    capture decode at [0, 8]
    capture prefill at [0, 64]

    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest
        order:
            attn[decode]  | prev.mlp[prefill]
            attn[prefill] | mlp[decode]
"""


def test_replays_by_phase_change_no_bit(tmp_path: Path) -> None:
    spec = llama.flat(
        layers=6,
        hidden=256,
        capacity=128,
        requests=32,
        device="cuda",
        dtype="bfloat16",
        initializer_range=0.02,
    )
    made = build(spec, SCHEDULE, tmp_path)
    captured = made.module.load(spec.model, "cuda")
    plain = made.module.load(spec.model, "cuda", capture=False)
    assert isinstance(captured, Executor)
    entry = spec.entries["step"]
    *_, keys, values = entry.make({"tokens": 2})
    caches = [(keys, values), tuple([o.clone() for o in k] for k in (keys, values))]
    # Among them as many rows as are captured, cut elsewhere.
    steps = [(8, 64), (0, 64), (8, 0), (24, 48), (3, 5)]
    for number, (decode, prefill) in enumerate(steps * 4):
        phases = {"decode": decode, "prefill": prefill}
        torch.manual_seed(number)
        given: tuple[Any, ...] = entry.make({"tokens": decode + prefill, **phases})[:3]
        mine = captured(*given, *caches[0], phases=phases)
        expected = plain(*given, *caches[1], phases=phases)
        assert torch.equal(mine, expected), (number, phases)
    for left, right in zip(caches[0], caches[1], strict=True):
        assert all(map(torch.equal, left, right))
    assert [one.sizes for one in captured.report().sizes] == [
        "decode = 0, prefill = 64",
        "decode = 8, prefill = 0",
        "decode = 8, prefill = 64",
    ]
