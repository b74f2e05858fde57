"""Each Markdown file here holds schedules and the messages they must give.

A block of `dfs` is followed by a block of `text` with the whole output for it. After an
intended change, `pytest tests/messages --update` rewrites the second. Before the block
may stand what the schedule meets: files that it can import (`dfs NAME`), parameters and
facts of a command line (`sh`), facts of a model (`facts`, one in a line), and a plug-in
(`plugin`). With a block of `graph` (in the words of `tests.bind.graphs`) or of `model`
the schedule is bound, planned and proved as well: the latter for the model of
docs/language.md (`plain`), or for one that shows what a code is about.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
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
from dynaflow_dsl.resolve import (
    EntrySizes,
    Facts,
    Unreadable,
    choose,
    decide,
    resolve,
)
from dynaflow_dsl.resolve.model import Schedule
from dynaflow_dsl.resolve.uncaptured import never_given
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse
from tests.bind.graphs import graph
from tests.project.test_language_document import findings

# The entries of the model that a `select` with facts is for.
ENTRIES = (
    EntrySizes("decode", (("batch", 1, 1024),), (("seq", 1),)),
    EntrySizes("prefill", (("batch", 1, 64), ("tokens", 1, 8192)), (("seq", 16),)),
)

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FILES = sorted(HERE.glob("*.md"))
CASE = re.compile(
    r"(?P<files>(?:```dfs [^\n]+\n(?:(?!```).)*```\n\n)*)"
    r"(?:```plugin\n(?P<plugin>(?:(?!```).)*)```\n\n)?"
    r"(?:```sh\n(?P<options>(?:(?!```).)*)```\n\n)?"
    r"(?:```facts\n(?P<facts>(?:(?!```).)*)```\n\n)?"
    r"(?:```graph\n(?P<graph>(?:(?!```).)*)```\n\n)?"
    r"(?:```model\n(?P<model>\w+)\n```\n\n)?"
    r"```dfs\n(?P<dfs>.*?)```\n\n```text\n(?P<text>.*?)```\n",
    re.DOTALL,
)
FILE = re.compile(r"```dfs ([^\n]+)\n(.*?)```\n", re.DOTALL)


# What no schedule or command line can show; the file tests the text.
TESTED_ELSEWHERE = {
    "DFS314": "tests/bind/test_capture.py",
    "DFS322": "tests/faults/kind_7/rows_that_fill_no_piece/expected.txt",
    "DFS401": "tests/end_to_end/test_kernels.py",
    "DFS403": "tests/end_to_end/test_kernels.py",
    "DFS404": "tests/end_to_end/test_kernels.py",
    "DFS701": "tests/prove/test_messages.py",
    "DFS702": "tests/prove/test_messages.py",
    "DFS704": "tests/bind/test_capture.py",
    "DFS707": "tests/prove/test_messages.py",
    "DFS801": "tests/runtime/test_load.py",
    "DFS802": "tests/runtime/test_inputs.py",
    "DFS803": "tests/runtime/test_load.py",
    "DFS804": "tests/cli/test_verify.py",
    "DFS805": "tests/runtime/test_sizes.py",
    "DFS806": "tests/end_to_end/test_kernels.py",
    "DFS807": "tests/gpu/test_capture.py",
    "DFS808": "tests/cli/test_verify.py",
    "DFS809": "tests/runtime/test_facts.py",
    "DFS810": "tests/runtime/test_checking.py",
    "DFS811": "tests/end_to_end/test_contexts.py",
    "DFS815": "tests/runtime/test_ranks.py",
    "DFS816": "tests/runtime/test_ranks.py",
    "DFS817": "tests/runtime/test_groups.py",
    "DFS818": "tests/kernels/test_host_memory.py",
    "DFS820": "tests/integrations/dynamo/test_refusals.py",
    "DFS821": "tests/integrations/dynamo/test_refusals.py",
    "DFS830": "tests/integrations/hugging_face/test_refusals.py",
    "DFS831": "tests/integrations/hugging_face/test_refusals.py",
    "DFS900": "tests/cli/test_main.py",
}


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
    if case["model"] is not None:
        return findings(case["dfs"], case["model"])
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
    facts = Facts(given, target, ("rows",))
    decided = decide(resolved.value, facts)
    if resolved.value.select is None or target is None:
        return decided.diagnostics
    chosen = choose(resolved.value.select, facts, ENTRIES)
    if chosen.value is None:
        return chosen.diagnostics
    schedules = resolved.value.schedules
    return (*chosen.diagnostics, *never_given(chosen.value, schedules))


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


def raised() -> set[str]:
    """The codes that the package names."""
    sources = [*(ROOT / "dynaflow_dsl").rglob("*.py")]
    sources += (ROOT / "grammars" / "mistakes").glob("*.mistake")
    return {
        code
        for file in sources
        for code in re.findall(r"\bDFS[0-9]{3}\b", file.read_text(encoding="utf-8"))
    }


def without_message(texts: Iterable[str]) -> set[str]:
    """The codes whose message is in none of the texts, and in no other test."""
    text = "\n".join(texts)
    shown = set(re.findall(r"\b(?:error|warning|info)\[(DFS[0-9]{3})\]: \S", text))
    return raised() - shown - TESTED_ELSEWHERE.keys()


def test_every_code_that_is_raised_has_a_message_here() -> None:
    texts = [file.read_text(encoding="utf-8") for file in HERE.rglob("*.md")]
    assert without_message(texts) == set()


def test_a_code_without_message_is_found() -> None:
    texts = [file.read_text(encoding="utf-8") for file in HERE.rglob("*.md")]
    assert without_message(text.replace("[DFS302]", "") for text in texts) == {"DFS302"}


@pytest.mark.parametrize(("code", "file"), TESTED_ELSEWHERE.items())
def test_the_other_codes_have_tests(code: str, file: str) -> None:
    assert code in (ROOT / file).read_text(encoding="utf-8")
    assert code in raised()
