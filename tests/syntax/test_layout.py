from __future__ import annotations

import pytest

from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax.layout import MAX_DEPTH, MAX_LENGTH, scan


def lines(text: str) -> list[tuple[int, str]]:
    return [
        (line.indent, text[line.start : line.end])
        for line in scan(Source("a.dfs", text)).lines
    ]


def codes(text: str) -> list[str]:
    return [each.code for each in scan(Source("a.dfs", text)).diagnostics]


def test_comments_and_blank_lines_are_no_lines() -> None:
    text = "# top\n\ndfs 1  # one\n   \n    # deep\nschedule s:\n    stream a"
    assert lines(text) == [(0, "dfs 1"), (0, "schedule s:"), (4, "stream a")]
    assert codes(text) == []


def test_brackets_continue_a_line() -> None:
    text = "part a = (  # (\n  .b\n# c\n+ [\n]\n)\npart b = .c\n"
    assert [start for start, _ in lines(text)] == [0, 0]


def test_brackets_in_texts_and_comments_do_not_count() -> None:
    assert len(lines('a = "(" # (\nb\n')) == 2


def test_windows_line_ends_and_byte_order_mark() -> None:
    assert lines("\ufeffdfs 1\r\n\r\nmodel a\r\n") == [(0, "dfs 1"), (0, "model a")]


@pytest.mark.parametrize("opener", ["part", "order", "schedule", "stream"])
def test_a_statement_ends_an_unclosed_bracket(opener: str) -> None:
    text = f"dfs 1\na = (.b\n{opener} c\n"
    assert codes(text) == ["DFS005"]
    assert len(lines(text)) == 3


def test_a_word_that_only_begins_like_a_statement_does_not() -> None:
    assert codes("a = (\npart_b\n)\n") == []


def test_an_unclosed_bracket_at_the_end() -> None:
    assert codes("a = (.b\n") == ["DFS005"]


@pytest.mark.parametrize("margin", ["\t", "  \t", "\t  "])
def test_tabs(margin: str) -> None:
    result = scan(Source("a.dfs", f"a:\n{margin}b\n"))
    assert [each.code for each in result.diagnostics] == ["DFS002"]
    assert result.diagnostics[0].primary is not None
    assert result.diagnostics[0].primary.span.text == "\t"


def test_tabs_inside_a_line_are_spaces() -> None:
    assert codes("dfs\t1\n") == []


def test_bad_dedents_are_found_one_by_one() -> None:
    text = "a:\n    b:\n        c\n      d\n      e\n        f\n   g\n"
    assert codes(text) == ["DFS003", "DFS003"]
    assert len(scan(Source("a.dfs", text)).broken) == 3


def test_depth() -> None:
    assert codes("a = " + "+".join(["b"] * (MAX_DEPTH + 1))) == []
    assert codes("a = " + "+".join(["b"] * (MAX_DEPTH + 2))) == ["DFS006"]
    assert codes("a = " + "(" * MAX_DEPTH + ")" * MAX_DEPTH) == []
    assert codes("a = " + "(" * (MAX_DEPTH + 1) + ")" * (MAX_DEPTH + 1)) == ["DFS006"]


def test_length() -> None:
    assert codes("a" * MAX_LENGTH + "\nb") == []
    assert codes("a" * (MAX_LENGTH + 1) + "\nb") == ["DFS006"]


def test_many_steps_are_not_deep() -> None:
    assert codes("a[0], " * (2 * MAX_DEPTH) + "b") == []
