"""Real files with other spaces, line breaks and comments between their words."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynaflow_dsl.formatting import format_source, print_tree
from dynaflow_dsl.formatting.format import meaning
from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse
from dynaflow_dsl.syntax.words import OPENERS
from tests.formatting.trees import TREES

HERE = Path(__file__).parent
FILES = [
    *sorted((HERE.parent / "syntax" / "examples").rglob("*.dfs")),
    *sorted((HERE / "layouts").glob("*.dfs")),
]
TEXTS = [file.read_text(encoding="utf-8") for file in FILES]
HALVES = next(t for f, t in zip(FILES, TEXTS, strict=True) if f.stem == "halves")

SEEDS = st.integers(0, 2**32)

# A comment, a string, spaces, a path or number or name, a sign.
WORD = re.compile(
    r'#[^\n]*|"[^"\n]*"|[ ]+|\n|[A-Za-z0-9_.*?]+|[=!<>]=|//|[^\sA-Za-z0-9_.*?]'
)
COMMENT = re.compile(r'"[^"\n]*"|(#[^\n]*)')


def comments(text: str) -> list[str]:
    return [found[1].rstrip() for found in COMMENT.finditer(text) if found[1]]


def mangle(text: str, seed: int) -> str:
    """Put spaces, comments and line breaks where they mean nothing."""
    random = Random(seed)
    words = WORD.findall(text)
    out: list[str] = []
    depth = number = 0
    for word, following in zip(words, [*words[1:], "\n"], strict=True):
        depth += (word in ("(", "[")) - (word in (")", "]"))
        choice = random.randrange(10)
        if word == "\n" and choice == 0:
            number += 1
            out.append(f" # remark {number}")
        out.append(word)
        if word == "\n" and choice in (1, 2, 3):
            number += 1
            margin = " " * random.randrange(13)
            out.append(["\n", f"{margin}# remark {number}\n", "  \n\n"][choice - 1])
        inside = depth and word not in "\n " and not word.startswith("#")
        if not inside or following.strip() in OPENERS:
            continue
        number += 1
        match choice:
            case 1:
                out.append(f" # remark {number}\n ")
            case 2:
                out.append(f"\n\n# remark {number}\n")
            case 3:
                out.append(" \n  ")
    return "".join(out)


def check(text: str) -> str:
    """The layout of a text, which says the same with the same comments."""
    tree = parse(Source("a.dfs", text)).unwrap()
    once = format_source(Source("a.dfs", text)).unwrap()
    assert meaning(parse(Source("a.dfs", once)).unwrap()) == meaning(tree)
    assert comments(once) == comments(text)
    assert format_source(Source("a.dfs", once)).unwrap() == once
    return once


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(TEXTS), SEEDS)
def test_mangled_files(text: str, seed: int) -> None:
    check(mangle(text, seed))


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(TREES.map(print_tree), SEEDS)
def test_mangled_trees(text: str, seed: int) -> None:
    check(mangle(text, seed))


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(SEEDS)
def test_the_digest_stays(seed: int) -> None:
    text = check(mangle(HALVES, seed))
    before, after = (
        resolve(parse(Source("a.dfs", each)).unwrap()).unwrap()
        for each in (HALVES, text)
    )
    assert after.digest == before.digest
