"""The kernel and the schedule of docs/kernels.md are compiled, and run right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from dynaflow_dsl import pipeline
from dynaflow_dsl.models import llama
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import trace
from dynaflow_dsl.trace.kernels import KernelReader
from tests.end_to_end.building import build, run_verify
from tests.project.commands import ROOT

DOCUMENT = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```", DOCUMENT, re.M | re.S)
    assert isinstance(text, str)
    return text


def test_the_document_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weave_kernels.py").write_text(block("python"))
    monkeypatch.syspath_prepend(tmp_path)
    built = build(llama.decode(layers=2), block("dfs"), tmp_path)
    shown = block("text")
    assert shown in built.compiled.text
    for report in run_verify(built, batches=(1, 4)):
        assert report.ok, str(report)
        assert report.kernels[0].calls == 4


def test_a_changed_kernel_changes_the_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = block("python")
    schedule = block("dfs").replace("weave_kernels", "weave_kernels_{n}")
    model = trace(llama.decode(layers=2), "t:t", {}).unwrap()
    texts = []
    for n, changed in enumerate((source, source.replace("lanes=1", "lanes=2"))):
        (tmp_path / f"weave_kernels_{n}.py").write_text(changed)
        file = pipeline.understand(Source("s.dfs", schedule.format(n=n))).unwrap()
        reader = KernelReader("cpu", torch.float32)
        made = pipeline.compile_schedules(file, model, None, reader).unwrap()
        texts.append(re.findall(r'"digest": "(\w+)"', made.map))
    assert len(texts[0]) == len(texts[1]) == 1
    assert texts[0] != texts[1]
