"""Whatever the text: a result, with a tree or an error, and places inside the text."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from dynaflow_dsl.diagnostics import Result, render
from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse
from dynaflow_dsl.syntax.words import RESERVED

EXAMPLES = [
    file.read_text(encoding="utf-8")
    for file in sorted((Path(__file__).parent / "examples").rglob("*.dfs"))
]

WORDS = st.sampled_from(
    [
        *sorted(RESERVED),
        *["attn", "mlp", "half", "side", "batch", ".a", ".", "prev.mlp", "next.b"],
        *["0", "1", "2", "0.5", '"t"', '"', "#c", "\n", "\n    ", "\n        ", "\t"],
        *["(", ")", "[", "]", ":", ",", "|", "=", "==", "+", "-", "*", "//", "%", "$"],
        *["\r\n", "\ufeff", "é", "dfs 1\n"],
    ]
)


def check(text: str) -> None:
    parsed = parse(Source("a.dfs", text))
    check_result(parsed, text)
    if parsed.value is not None:
        check_result(resolve(parsed.value), text)


def check_result(result: Result[object], text: str) -> None:
    assert result.ok == (not result.diagnostics) == (result.value is not None)
    for diagnostic in result.diagnostics:
        assert diagnostic.primary is not None
        for label in (diagnostic.primary, *diagnostic.secondary):
            assert 0 <= label.span.start <= label.span.end <= len(text)
    assert render(result.diagnostics).count("error[DFS") >= len(result.diagnostics)


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    check(text)


@settings(deadline=None, max_examples=150)
@given(st.lists(WORDS, max_size=40))
def test_any_words(words: list[str]) -> None:
    check("dfs 1\n" + " ".join(words))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_damaged_examples(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(EXAMPLES))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(WORDS | st.just("")) + text[end:]
    check(text)
