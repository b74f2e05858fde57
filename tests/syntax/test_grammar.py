from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from dynaflow_dsl.resources import folder
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse
from dynaflow_dsl.syntax.parser import make_parser, parser
from dynaflow_dsl.syntax.words import (
    BUILT_IN,
    IMPLICIT_PARTS,
    KEPT,
    KEYWORDS,
    OPENERS,
    RESERVED,
)

GRAMMAR = (folder("grammars") / "dfs.lark").read_text(encoding="utf-8")
HERE = Path(__file__).parent
SHIPPED = sorted(folder("schedules").rglob("*.dfs"))
EXAMPLES = sorted((HERE / "examples").rglob("*.dfs"))


def test_no_two_terminals_collide_and_no_rules_conflict() -> None:
    assert importlib.util.find_spec("interegular") is not None
    strict = make_parser(GRAMMAR, None, strict=True)
    assert strict.parse("dfs 1\n").data == "start"


def test_there_are_nine_examples() -> None:
    assert len(EXAMPLES) == 9


@pytest.mark.parametrize("file", [*EXAMPLES, *SHIPPED], ids=lambda file: file.stem)
def test_examples_parse(file: Path) -> None:
    result = parse(Source(file.name, file.read_text(encoding="utf-8")))
    assert result.ok, result.diagnostics


def test_keywords_are_those_of_the_grammar() -> None:
    literals = {
        terminal.pattern.value
        for terminal in parser().terminals
        if terminal.pattern.type == "str"
    }
    assert {word for word in literals if word.isalpha()} == KEYWORDS


def test_openers_are_keywords_that_begin_a_rule() -> None:
    begin = set(re.findall(r'^\w+:\s+"([a-z]+)"', GRAMMAR, re.MULTILINE))
    # Those that follow another word, and the two at the top of a file.
    inner = {"having", "on", "via", "by", "after", "dfs", "model", "true", "false"}
    assert begin - inner == OPENERS


def test_reserved_words() -> None:
    groups = [KEYWORDS, BUILT_IN, IMPLICIT_PARTS, KEPT]
    assert sum(map(len, groups)) == len(RESERVED)
    assert {"rest", "own", "weights", "main", "sequential"} <= BUILT_IN
    assert {"walk", "loop", "place", "pass", "blocks"} == KEPT
