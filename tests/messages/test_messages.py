"""Each Markdown file here holds schedules and the messages they must give.

A block of `dfs` is followed by a block of `text` with the whole output for it. After an
intended change, `pytest tests/messages --update` rewrites the second. Before the block
may stand what the schedule meets: files that it can import (`dfs NAME`), parameters and
facts of a command line (`sh`), facts of a model (`facts`, one in a line), or the model
itself (`graph`, in the words of `tests.bind.graphs`), and a plug-in (`plugin`).
"""

from __future__ import annotations

import re
import shlex
from importlib.metadata import EntryPoint
from pathlib import Path
from unittest.mock import patch

import pytest

from dynaflow_dsl.bind import bind
from dynaflow_dsl.cli.options import read_scalar
from dynaflow_dsl.diagnostics import Diagnostic, render
from dynaflow_dsl.operations import plugins
from dynaflow_dsl.plan import plan
from dynaflow_dsl.prove import prove
from dynaflow_dsl.resolve import Facts, Unreadable, decide, resolve
from dynaflow_dsl.resolve.model import Schedule
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse
from tests.bind.graphs import graph

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FILES = sorted(HERE.glob("*.md"))
CASE = re.compile(
    r"(?P<files>(?:```dfs [^\n]+\n(?:(?!```).)*```\n\n)*)"
    r"(?:```plugin\n(?P<plugin>(?:(?!```).)*)```\n\n)?"
    r"(?:```sh\n(?P<options>(?:(?!```).)*)```\n\n)?"
    r"(?:```facts\n(?P<facts>(?:(?!```).)*)```\n\n)?"
    r"(?:```graph\n(?P<graph>(?:(?!```).)*)```\n\n)?"
    r"```dfs\n(?P<dfs>.*?)```\n\n```text\n(?P<text>.*?)```\n",
    re.DOTALL,
)
FILE = re.compile(r"```dfs ([^\n]+)\n(.*?)```\n", re.DOTALL)


def messages(case: re.Match[str]) -> tuple[Diagnostic, ...]:
    if case["plugin"] is None:
        return answer(case)
    name, place = case["plugin"].strip().split(" = ")
    plugin = EntryPoint(name, place, plugins.GROUP)
    plugins._values.cache_clear()
    try:
        with patch("importlib.metadata.entry_points", lambda group: [plugin]):
            return answer(case)
    finally:
        plugins._values.cache_clear()


def answer(case: re.Match[str]) -> tuple[Diagnostic, ...]:
    main = Source("example.dfs", case["dfs"])
    parsed = parse(main)
    if parsed.value is None:
        return parsed.diagnostics
    others = {name: Source(name, text) for name, text in FILE.findall(case["files"])}
    others[main.name] = main
    options: dict[str, dict[str, str]] = {"-P": {}, "-F": {}}
    words = shlex.split(case["options"] or "")
    for option, pair in zip(words[::2], words[1::2], strict=True):
        name, _, value = pair.partition("=")
        options[option][name] = value
    resolved = resolve(
        parsed.value,
        lambda _, name: others.get(name, Unreadable("there is no such file")),
        options["-P"],
    )
    if resolved.value is None:
        return resolved.diagnostics
    if case["graph"] is not None:
        return _on_a_model(resolved.value.schedules[0], case["graph"])
    target = None
    if case["facts"] is not None:
        pairs = (line.split(" = ") for line in case["facts"].splitlines())
        target = {name: read_scalar(value) for name, value in pairs}
    given = {name: read_scalar(value) for name, value in options["-F"].items()}
    return decide(resolved.value, Facts(given, target, ("rows",))).diagnostics


def _on_a_model(schedule: Schedule, text: str) -> tuple[Diagnostic, ...]:
    bound = bind(schedule, graph(text))
    if bound.value is None:
        return bound.diagnostics
    planned = plan(bound.value)
    if planned.value is None:
        return planned.diagnostics
    return prove(planned.value).diagnostics


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_messages(file: Path, update: bool) -> None:
    text = file.read_text(encoding="utf-8")

    def answered_case(case: re.Match[str]) -> str:
        question = case[0][: case.start("text") - case.start()]
        return f"{question}{render(messages(case))}```\n"

    answered = CASE.sub(answered_case, text)
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
        for code in re.findall(r"(?:error|info)\[(DFS[0-9]{3})\]", file.read_text())
    }
    assert raised - shown == set()
