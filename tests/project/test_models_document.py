"""docs/models.md lists every target, and its examples run."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from dynaflow_dsl import pipeline
from dynaflow_dsl.models import gemma3, qwen3_moe
from dynaflow_dsl.models.architecture import Architecture
from dynaflow_dsl.models.family import Family
from dynaflow_dsl.trace import load_target
from tests.end_to_end.building import build, run_verify
from tests.project.commands import ROOT

DOCUMENT = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
TABLE = DOCUMENT[: DOCUMENT.index("## Decoders")]
ROWS = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", TABLE, re.MULTILINE)
TARGET = re.compile(
    r"^(def )?(decode|encode|classify|both|denoise)(\(|, )", re.MULTILINE
)


def blocks(language: str) -> list[str]:
    found = rf"^```{language}\n(.*?)^```"
    return re.findall(found, DOCUMENT, re.MULTILINE | re.DOTALL)


def test_every_family_is_listed_with_its_sizes() -> None:
    listed = {name: sizes for name, _, sizes, _ in ROWS}
    found = 0
    for path in (ROOT / "dynaflow_dsl" / "models").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not TARGET.search(text):
            continue
        assert path.stem in listed
        if re.search(r" = (Family|Architecture)\(", text):
            module = import_module(f"dynaflow_dsl.models.{path.stem}")
            models = vars(module).values()
            (made,) = (one for one in models if isinstance(one, Architecture))
            assert re.findall(r"`(.+?)`", listed[path.stem]) == list(made.published)
            found += 1
    assert found == 18


@pytest.mark.parametrize("name", [row[0] for row in ROWS])
def test_functions_and_schedules_are_there(name: str) -> None:
    ((functions, _, schedule),) = (row[1:] for row in ROWS if row[0] == name)
    if name in ("dit", "flux", "sd3"):
        pytest.importorskip("diffusers")
    module = import_module(f"dynaflow_dsl.models.{name}")
    for function in re.findall(r"`(\w+)`", functions):
        assert callable(getattr(module, function))
    known = {"decode", "prefill", "serve", "flat", "encode", "classify", "denoise"}
    there = {name for name in known if hasattr(module, name)}
    assert there <= set(re.findall(r"`(\w+)`", functions))
    for file in re.findall(r"`([^`]+\.dfs)`", schedule):
        understood = pipeline.read_schedule(ROOT / "schedules" / file).unwrap()
        assert understood.model is not None
        assert understood.model.target.startswith(f"dynaflow_dsl.models.{name}:")


def test_the_encoder_of_the_document_is_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("targets.py").write_text(blocks("python")[1], encoding="utf-8")
    (schedule,) = blocks("dfs")
    spec = load_target("targets.py:roberta", {"layers": 2}, None).unwrap()
    made = build(spec, schedule, tmp_path)
    for report in run_verify(made, batches=(1, 5)):
        assert report.ok, str(report)


@pytest.mark.parametrize("family", [gemma3.GEMMA3, qwen3_moe.QWEN3_MOE])
def test_weights_of_ones_own_are_loaded(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("targets.py").write_text(blocks("python")[0], encoding="utf-8")
    model = family.serve(layers=1, vocab=64).model
    assert isinstance(model, PreTrainedModel)
    model.save_pretrained("saved")
    spec = load_target("targets.py:mine", {"path": "saved"}, None).unwrap()
    assert sorted(spec.entries) == ["decode", "prefill"]
    assert spec.trial is not None
    made, expected = spec.trial({}, 2, 0)
    assert made.tolist() == expected.tolist()
