"""docs/integrations.md and the README do what they say."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.integrations import report
from dynaflow_dsl.integrations.dynamo.options import _READERS
from tests.project.commands import ROOT

DOCUMENT = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    found = rf"^```{language}\n(.*?)^```"
    return re.findall(found, text, re.MULTILINE | re.DOTALL)


def eager(program: str) -> str:
    """The same program without Inductor, which has tests of its own."""
    changed = program.replace("options={", 'options={"compile": False, ')
    assert changed != program
    return changed


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("halves.dfs").write_text(blocks(DOCUMENT, "dfs")[0])
    program = eager(blocks(DOCUMENT, "python")[0])
    (tmp_path / "run_of_document.py").write_text(program)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = vars(import_module("run_of_document"))
    assert names["result"].shape == (8, 64)
    module = import_module_file(tmp_path / "executors" / "halves.py")
    x = torch.randn(6, 64)
    with torch.inference_mode():
        again = names["step"](x)
    assert torch.equal(module.load(names["model"], compile=False)(x), again)
    assert [part for part, _ in report().graphs[0].parts] == ["expand", "reduce"]


def test_the_example_of_the_readme_runs() -> None:
    names: dict[str, Any] = {}
    (target,) = (b for b in blocks(README, "python") if "def stack(" in b)
    exec(target, names)
    names["model"] = names["stack"](layers=2).model
    text = blocks(README, "dfs")[1]
    Path("stack.dfs").write_text(text)
    (program,) = (b for b in blocks(README, "python") if "torch.compile(" in b)
    exec(eager(program), names)
    x = torch.randn(4, 64)
    torch.testing.assert_close(names["step"](x), names["model"](x))


def test_every_option_is_listed() -> None:
    table = DOCUMENT[DOCUMENT.index("### Options") : DOCUMENT.index("### Inputs")]
    listed = [
        name
        for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert set(listed) == set(_READERS)
