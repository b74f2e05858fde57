from __future__ import annotations

import pytest

from dynaflow_dsl.source import Source, Span

TEXT = "first\nsecond\r\n\nlast"


@pytest.mark.parametrize(
    ("offset", "place"),
    [(0, (1, 1)), (5, (1, 6)), (6, (2, 1)), (14, (3, 1)), (15, (4, 1)), (19, (4, 5))],
)
def test_position(offset: int, place: tuple[int, int]) -> None:
    assert Source("a.dfs", TEXT).position(offset) == place


def test_line_has_no_line_break() -> None:
    source = Source("a.dfs", TEXT)
    assert [source.line(number) for number in range(6)] == [
        "",
        "first",
        "second",
        "",
        "last",
        "",
    ]


def test_only_line_feeds_end_lines() -> None:
    source = Source("a.dfs", "a\x0bb\x0cc\u2028d\re\nf")
    assert source.position(source.text.index("f")) == (2, 1)
    assert source.line(1) == "a\x0bb\x0cc\u2028d\re"


def test_the_end_of_a_text_without_line_break_is_on_its_last_line() -> None:
    assert Source("a.dfs", "abc").position(3) == (1, 4)


def test_span() -> None:
    span = Span(Source("a.dfs", TEXT), 6, 12)
    assert (span.line, span.column, span.text) == (2, 1, "second")
    assert str(span) == "a.dfs:2:1"


def test_equal_texts_are_different_sources() -> None:
    assert Source("a.dfs", "x") != Source("a.dfs", "x")


def test_a_phrase_has_no_comments_and_one_line() -> None:
    text = """(  # first "quoted"
        .a  +
        ("*#b" in .)  # last
    )"""
    source = Source("a.dfs", text)
    assert Span(source, 0, len(text)).phrase == '( .a + ("*#b" in .) )'
