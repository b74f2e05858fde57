from __future__ import annotations

import re
from pathlib import Path

import pytest

from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse
from dynaflow_dsl.syntax.forms import FORMS
from dynaflow_dsl.syntax.mistakes import (
    Mistake,
    mistake_table,
    read_mistake,
    read_mistakes,
)
from dynaflow_dsl.syntax.parser import parser

MISTAKES = read_mistakes()


def mistake(*examples: str, file: str = "a.mistake") -> Mistake:
    return Mistake(file, "DFS004", "message", "here", (), "word", "one", examples)


def test_every_example_fails_and_no_key_has_two_messages() -> None:
    table = mistake_table(MISTAKES, parser())
    assert {each.file for each in table.values()} == {each.file for each in MISTAKES}


@pytest.mark.parametrize("each", MISTAKES, ids=lambda each: each.file)
def test_examples_get_their_message(each: Mistake) -> None:
    for example in each.examples:
        first = parse(Source("a.dfs", example)).diagnostics[0]
        assert (first.code, first.message) == (each.code, each.message), example


@pytest.mark.parametrize("each", MISTAKES, ids=lambda each: each.file)
def test_the_message_does_not_depend_on_what_stands_before(each: Mistake) -> None:
    before = 'dfs 1\nfrom "a.dfs" import b\nparts q:\n    part r = .s\n'
    for example in each.examples:
        if "\nmodel " in example:
            continue
        text = before + example.removeprefix("dfs 1\n")
        first = parse(Source("a.dfs", text)).diagnostics[0]
        assert (first.code, first.message) == (each.code, each.message), text


# Statements, and the same with what may be left out in them.
LEFT_OUT = [
    (r"^(schedule|select) (\w+):", r"\1 \2(count = 2):"),
    (r"^( *each \w+ in \S+):", r"\1 having .more:"),
    (r"^( *stagger \w+):", r"\1 by 1:"),
    (r"^( *part \w+) =", r"\1 (rowwise = true) on side ="),
]


@pytest.mark.parametrize("each", MISTAKES, ids=lambda each: each.file)
@pytest.mark.parametrize(("short", "long"), LEFT_OUT)
def test_the_message_does_not_depend_on_what_may_be_left_out(
    each: Mistake, short: str, long: str
) -> None:
    for example in each.examples:
        text = re.sub(short, long, example, flags=re.MULTILINE)
        first = parse(Source("a.dfs", text)).diagnostics[0]
        assert (first.code, first.message) == (each.code, each.message), text


def test_an_example_that_is_correct_is_refused() -> None:
    with pytest.raises(ValueError, match="is correct"):
        mistake_table([mistake("dfs 1\n")], parser())


def test_an_example_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="no word can be read"):
        mistake_table([mistake("dfs 1\n$\n")], parser())


def test_two_messages_for_one_mistake_are_refused() -> None:
    example = "dfs 1\nschedule s\n"
    pair = [mistake(example), mistake(example, file="b.mistake")]
    with pytest.raises(ValueError, match="share"):
        mistake_table(pair, parser())


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.mistake"
    file.write_text("code: DFS004\nmessage: a\nhepl: b\n---\ndfs 1\n")
    with pytest.raises(ValueError, match="hepl"):
        read_mistake(file)


# Files in which a statement may stand, by its keyword, and what may stand below it.
TOP, BODY = "dfs 1\n\n{}\n", "dfs 1\n\nschedule s:\n    {}\n"
FILES = {
    **dict.fromkeys(FORMS, BODY),
    **dict.fromkeys(("from", "kernel", "model"), TOP),
    "each": f"{BODY}        use a\n",
    "else": "dfs 1\n\nselect s:\n    when a: b\n    {}\n",
    "equal": "dfs 1\n\nselect s:\n    {}\n    when a: b\n    else: c\n",
    "order": f"{BODY}        a\n",
    "parts": f"{TOP}    part a = .b\n",
    "schedule": f"{TOP}    use a\n",
    "select": f"{TOP}    when a: b\n    else: c\n",
    "stagger": BODY.format("each l in .m:\n        {}\n            a"),
    "when": "dfs 1\n\nselect s:\n    {}\n    else: c\n",
}
# A condition may stand in brackets.
NO_CALLS = {*FORMS} - {"require", "when"}


@pytest.mark.parametrize("keyword", sorted(NO_CALLS))
def test_a_statement_as_a_call_gets_its_form(keyword: str) -> None:
    for arguments in ("(a, 2)", '("a")', "(a = [1])", "(a):", "()"):
        text = FILES[keyword].format(f"{keyword}{arguments}")
        first = parse(Source("a.dfs", text)).diagnostics[0]
        assert first.primary is not None
        assert first.primary.text == "a statement is no call"
        assert first.helps == (f"write {FORMS[keyword]}",)


@pytest.mark.parametrize("keyword", sorted(FORMS))
def test_the_form_of_a_statement_can_be_read(keyword: str) -> None:
    form = FORMS[keyword].replace("SELECTOR", ".a").replace("PATH", ".a")
    assert parse(Source("a.dfs", FILES[keyword].format(form))).ok


@pytest.mark.parametrize(
    ("statement", "keyword"),
    [
        ("side = stream()", "stream"),
        ("attn = part(.b)", "part"),
        ("attn = .b", "part"),
        ("split batch, 2", "split"),
        ("capture batch = [1]", "capture"),
        ("use a()", "use"),
    ],
)
def test_a_statement_with_other_signs_gets_its_form(
    statement: str, keyword: str
) -> None:
    first = parse(Source("a.dfs", FILES[keyword].format(statement))).diagnostics[0]
    assert first.helps == (f"write {FORMS[keyword]}",)


def test_what_is_wrong_with_a_selector_is_no_matter_of_its_statement() -> None:
    text = FILES["part"].format("part a = .b .c")
    assert parse(Source("a.dfs", text)).diagnostics[0].helps == ()
