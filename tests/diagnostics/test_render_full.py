from __future__ import annotations

import textwrap
from dataclasses import replace

from dynaflow_dsl.diagnostics import Diagnostic, Label, Severity, render
from dynaflow_dsl.source import Source, Span


def label(source: Source, text: str, note: str = "", occurrence: int = 0) -> Label:
    """A label on the given occurrence of a stretch of text."""
    start = -1
    for _ in range(occurrence + 1):
        start = source.text.index(text, start + 1)
    return Label(Span(source, start, start + len(text)), note)


def shown(diagnostic: Diagnostic) -> str:
    return render([diagnostic])


def expected(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def test_both_places_of_one_line() -> None:
    source = Source(
        "llama/nanoflow.dfs", "\n" * 29 + " " * 12 + "ffn[2] | o_reduce[2]\n"
    )
    diagnostic = Diagnostic(
        "DFS302",
        "these two cannot overlap",
        label(source, "ffn[2]", "reads hidden_states, written by o_reduce[2]"),
        (label(source, "o_reduce[2]", "produces what ffn[2] reads"),),
        helps=("ffn[2] can start one window later, beside nothing or ffn_reduce[0]",),
    )
    assert shown(diagnostic) == expected(
        """
        error[DFS302]: these two cannot overlap
          --> llama/nanoflow.dfs:30:13
           |
        30 |             ffn[2] | o_reduce[2]
           |             ^^^^^^   ----------- produces what ffn[2] reads
           |             |
           |             reads hidden_states, written by o_reduce[2]
           |
           = help: ffn[2] can start one window later, beside nothing or ffn_reduce[0]
           = explain: dfsc explain DFS302
        """
    )


def test_three_places_of_one_line() -> None:
    source = Source("a.dfs", "one | two | three")
    diagnostic = Diagnostic(
        "DFS004",
        "three things",
        label(source, "two", "the second"),
        (label(source, "one", "the first"), label(source, "three", "the third")),
    )
    assert shown(diagnostic) == expected(
        """
        error[DFS004]: three things
         --> a.dfs:1:7
          |
        1 | one | two | three
          | ---   ^^^   ----- the third
          | |     |
          | |     the second
          | the first
        """
    )


def test_places_in_other_lines_and_another_file() -> None:
    source = Source("a.dfs", "\n".join(f"line {number}" for number in range(1, 12)))
    other = Source("lib/b.dfs", "stream side")
    diagnostic = Diagnostic(
        "DFS107",
        "many places",
        label(source, "line 9", "here"),
        (
            label(other, "side", "and there"),
            label(source, "line 2", "far above"),
            label(source, "line 7", "above"),
            label(source, "line 10"),
        ),
        notes=("of two\nlines",),
        severity=Severity.WARNING,
    )
    assert shown(diagnostic) == expected(
        """
        warning[DFS107]: many places
          --> a.dfs:9:1
           |
        2  | line 2
           | ------ far above
        ...
        7  | line 7
           | ------ above
        8  | line 8
        9  | line 9
           | ^^^^^^ here
        10 | line 10
           | -------
          ::: lib/b.dfs:1:8
           |
        1  | stream side
           |        ---- and there
           |
           = note: of two
                   lines
           = explain: dfsc explain DFS107
        """
    )


def test_a_span_of_several_lines_is_marked_on_its_first() -> None:
    source = Source("a.dfs", "part a = (\n    .b\n)\n")
    diagnostic = Diagnostic("DFS004", "long", label(source, source.text, "from here"))
    assert shown(diagnostic) == expected(
        """
        error[DFS004]: long
         --> a.dfs:1:1
          |
        1 | part a = (
          | ^^^^^^^^^^ from here
        """
    )


def test_tabs_and_wide_characters_keep_the_marks_below_their_text() -> None:
    source = Source("a.dfs", "\t流e\u0301x y")
    diagnostic = Diagnostic("DFS001", "wide", label(source, "y", "here"))
    lines = shown(diagnostic).splitlines()
    assert lines[3] == "1 |     流e\u0301x y"
    # Four columns for the tab, two for the wide character, none for the accent.
    assert lines[4] == "  | " + " " * (4 + 2 + 1 + 1 + 1) + "^ here"


def test_control_characters_are_not_sent_to_the_terminal() -> None:
    source = Source("a.dfs", "a\x1b[31m\u202eb")
    text = shown(Diagnostic("DFS001", "odd", label(source, "b", "here")))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_place_without_characters_gets_one_mark() -> None:
    source = Source("a.dfs", "order")
    diagnostic = Diagnostic("DFS010", "colon", Label(Span(source, 5, 5), "here"))
    assert shown(diagnostic).splitlines()[3:] == ["1 | order", "  |      ^ here"]


def test_the_end_of_an_empty_text() -> None:
    source = Source("a.dfs", "")
    diagnostic = Diagnostic("DFS014", "nothing", Label(Span(source, 0, 0), "here"))
    assert shown(diagnostic).splitlines()[3:] == ["1 |", "  | ^ here"]


def test_overlapping_places_show_both_texts() -> None:
    source = Source("a.dfs", "attn[0], mlp[1]")
    diagnostic = Diagnostic(
        "DFS303",
        "overlap",
        label(source, "attn[0]", "this"),
        (label(source, source.text, "all of it"),),
    )
    lines = shown(diagnostic).splitlines()
    assert lines[4] == "  | ^^^^^^^--------"
    assert {"  | this", "  | all of it"} <= set(lines)


def test_a_long_line_is_shown_around_its_mark() -> None:
    source = Source("a.dfs", "x" * 500 + " here " + "y" * 500)
    lines = shown(
        Diagnostic("DFS004", "long", label(source, "here", "look"))
    ).splitlines()
    assert lines[3].startswith("1 | ...x")
    assert lines[3].endswith("y...")
    assert len(lines[3]) < 140
    column = lines[4].index("^")
    assert lines[3][column : column + 4] == "here"
    assert lines[4].endswith("^^^^ look")


def test_without_a_place() -> None:
    diagnostic = Diagnostic("DFS110", "no such module", helps=("install it",))
    assert shown(diagnostic) == expected(
        """
        error[DFS110]: no such module
          = help: install it
          = explain: dfsc explain DFS110
        """
    )


def test_diagnostics_are_separated_by_an_empty_line() -> None:
    diagnostic = Diagnostic("DFS014", "nothing")
    assert render([diagnostic, diagnostic]) == (
        "error[DFS014]: nothing\n\nerror[DFS014]: nothing\n"
    )
    assert render([]) == ""


def test_what_brought_a_text_here_is_named_by_its_first_word() -> None:
    source = Source("a.dfs", "stagger half: a\nelse: staggered(ways = 2)\n")
    where = label(source, "a").span
    for use, said in (
        ("stagger half", "in this stagger"),
        ("staggered(ways = 2)", "used here"),
    ):
        place = replace(where, used_at=label(source, use).span)
        (other,) = Diagnostic("DFS307", "too far", Label(place)).others
        assert other.text == said
