"""Weights as torchao keeps them, int8 and a scale for each row, in a split schedule."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.models.decoder import decoder_spec
from dynaflow_dsl.models.llama import LLAMA
from tests.end_to_end.building import build, halves, run_verify

quantization = pytest.importorskip("torchao.quantization")
tools = pytest.importorskip("torchao.utils")


def test_weights_of_int8_bind_split_and_run(tmp_path: Path) -> None:
    options = {"layers": 3}
    model = LLAMA.random(options, LLAMA.configuration(options, 64))
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    tools.unwrap_tensor_subclass(model)
    model.eval()  # what unwraps the weights is new, and in training mode
    made = build(decoder_spec(model, capacity=64), halves(), tmp_path)
    kinds = {
        item.value.type.dtype
        for item in made.compiled.bindings[0].graph.inputs
        if item.kind == "parameter" and "mlp.up_proj" in item.name
    }
    assert "int8" in kinds
    for report in run_verify(made) + run_verify(made, batches=(3,), compiled=True):
        assert report.ok, str(report)
