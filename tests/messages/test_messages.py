"""Each Markdown file here holds schedules and the messages they must give.

A block of `dfs` is followed by a block of `text` with the whole output for it. After an
intended change, `pytest tests/messages --update` rewrites the second.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dynaflow_dsl.diagnostics import Diagnostic, render
from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FILES = sorted(HERE.glob("*.md"))
CASE = re.compile(r"```dfs\n(?P<dfs>.*?)```\n\n```text\n(?P<text>.*?)```\n", re.DOTALL)


def messages(text: str) -> tuple[Diagnostic, ...]:
    parsed = parse(Source("example.dfs", text))
    if parsed.value is None:
        return parsed.diagnostics
    return resolve(parsed.value).diagnostics


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_messages(file: Path, update: bool) -> None:
    text = file.read_text(encoding="utf-8")

    def answer(case: re.Match[str]) -> str:
        output = render(messages(case["dfs"]))
        return f"```dfs\n{case['dfs']}```\n\n```text\n{output}```\n"

    answered = CASE.sub(answer, text)
    if update:
        file.write_text(answered, encoding="utf-8")
    assert answered == text or update
    blocks = text.count("```dfs\n")
    assert blocks == len(CASE.findall(text)) > 0


def test_every_code_that_is_raised_has_a_message_here() -> None:
    rooms = [ROOT / "dynaflow_dsl" / room for room in ("syntax", "resolve")]
    sources = [file for room in rooms for file in room.rglob("*.py")]
    sources += (ROOT / "grammars" / "mistakes").glob("*.mistake")
    raised = {
        code
        for file in sources
        for code in re.findall(r"DFS[0-9]{3}", file.read_text(encoding="utf-8"))
    }
    shown = {
        code
        for file in FILES
        for code in re.findall(r"error\[(DFS[0-9]{3})\]", file.read_text())
    }
    assert raised - shown == set()
