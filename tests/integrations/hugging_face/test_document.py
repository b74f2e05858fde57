"""docs/hugging_face.md says what runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from dynaflow_dsl.cli.main import run as dfsc
from dynaflow_dsl.integrations.transformers import report
from tests.integrations.hugging_face.decoders import CAPACITY, model_of, tokenizer

DOCUMENT = Path(__file__).parents[3] / "docs" / "hugging_face.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and its tokenizer, which is the current one."""
    monkeypatch.chdir(tmp_path)
    model_of().save_pretrained("my-model")
    tokenizer().save_pretrained("my-model")
    return tmp_path


def test_a_few_lines_and_one_of_python(saved: Path) -> None:
    Path("halves.dfs").write_text(blocks("dfs")[0], encoding="utf-8")
    names: dict[str, Any] = {"path": "my-model"}
    program = blocks("python")[0].replace(
        "capacity=256", f"capacity={CAPACITY}, compile=False"
    )
    program = program.replace("max_new_tokens=64", "max_new_tokens=8")
    exec(program, names)
    expected = AutoModelForCausalLM.from_pretrained("my-model").generate(
        **names["texts"], max_new_tokens=8
    )
    assert torch.equal(names["tokens"], expected)
    assert report(names["model"]).steps == {"prefill": 1, "decode": 7}


def test_a_saved_model_is_a_target(saved: Path) -> None:
    text = blocks("dfs")[1]
    assert "capacity = 256" in text
    Path("halves.dfs").write_text(text.replace("= 256", f"= {CAPACITY}"), "utf-8")
    assert dfsc(["trace", "halves.dfs", "-M", "meta=true"]) == 0
    assert dfsc(["check", "halves.dfs"]) == 0
    assert dfsc(["fmt", "--check", "halves.dfs"]) == 0
    assert dfsc(["verify", "halves.dfs", "--text-only", "--batch", "3"]) == 0
