"""Files in `layouts/` and their one layout, in `layouts/*.expected`.

After an intended change, `pytest tests/formatting --update` writes the latter again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.formatting import format_source
from dynaflow_dsl.formatting.format import meaning
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse

HERE = Path(__file__).parent
LAYOUTS = sorted((HERE / "layouts").glob("*.dfs"))
EXAMPLES = sorted((HERE.parent / "syntax" / "examples").rglob("*.dfs"))
SHIPPED = sorted((HERE.parents[1] / "schedules").rglob("*.dfs"))

# Examples whose columns were aligned by other rules.
REALIGNED = {"nanoflow", "branches", "shared_expert"}


def formatted(text: str) -> str:
    return format_source(Source("a.dfs", text)).unwrap()


@pytest.mark.parametrize("file", LAYOUTS, ids=lambda file: file.stem)
def test_layouts(file: Path, update: bool) -> None:
    expected = file.with_suffix(".expected")
    text = formatted(file.read_text(encoding="utf-8"))
    if update:
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")
    assert formatted(text) == text


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_keep_their_meaning_and_settle_at_once(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    once = formatted(text)
    assert formatted(once) == once
    before, after = (parse(Source("a.dfs", each)).unwrap() for each in (text, once))
    assert meaning(after) == meaning(before)
    assert (once == text) == (file.stem not in REALIGNED)
    assert [line.split() for line in once.splitlines()] == [
        line.split() for line in text.splitlines()
    ]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_schedules_are_formatted(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert formatted(text) == text


def schedule(*lines: str) -> str:
    return "".join(f"{line}\n" for line in ("dfs 1", "", "schedule s:", *lines))


@pytest.mark.parametrize(
    ("written", "laid_out"),
    [
        ("require a == 1 or b and c", "require a == 1 or (b and c)"),
        ("require (a and b) and c", "require a and b and c"),
        ("require a and (b and c)", "require a and (b and c)"),
        ("require not (not a)", "require not not a"),
        ("require (not a) == b", "require (not a) == b"),
        ("require a - (b - c) - d", "require a - (b - c) - d"),
        ("require a * (b + c) // 2 % 3", "require a * (b + c) // 2 % 3"),
        ("require (a == b) == c", "require (a == b) == c"),
        ("require 1.50 >= 02.0", "require 1.5 >= 2.0"),
        ("part p = x in .a or .b", "part p = (x in .a) or .b"),
        ("part p = .a or (.b or .c)", "part p = .a or (.b or .c)"),
        ("part p = (.a or .b) or .c", "part p = .a or .b or .c"),
        ("part p = x in (y in (.a + .b))", "part p = x in (y in (.a + .b))"),
        ("part p = (((.a) + .b)) - .c", "part p = .a + .b - .c"),
        ("part p = order + (part)", "part p = order + part"),
        ("stream a ()", "stream a"),
        ("stream a(b=1,)", "stream a (b = 1)"),
    ],
)
def test_parentheses_and_numbers(written: str, laid_out: str) -> None:
    assert formatted(schedule(f"    {written}")) == schedule(f"    {laid_out}")


def test_a_word_that_opens_statements_never_starts_a_line_in_brackets() -> None:
    long = " + ".join([f".a_long_module_path_{number}" for number in range(9)])
    text = formatted(schedule(f"    part p = order + {long} - select"))
    assert formatted(text) == text
    assert "(order\n" in text


def test_line_ends_and_a_byte_order_mark_go() -> None:
    text = schedule("    stream a  # why", "", "    # and", "    stream b")
    assert formatted("\ufeff" + text.replace("\n", "\r\n").rstrip()) == text


def test_a_comment_without_brackets_goes_behind_its_statement() -> None:
    text = schedule(
        "    stream a (  # one",
        "        # two",
        "    )  # three",
        "    stream b",
    )
    assert formatted(text) == schedule(
        "    stream a  # one",
        "    # two",
        "    # three",
        "    stream b",
    )


def test_a_comment_before_the_first_word_of_a_window() -> None:
    text = schedule(
        "    order:",
        "        (  # both",
        "            a | b",
        "        )",
    )
    assert formatted(text) == text
    own_line = text.replace("(  #", "(\n            #")
    assert formatted(text.replace("(  #", "(\n#")) == own_line


def test_a_description_stays_what_it_was() -> None:
    text = (
        "dfs 1\n"
        'model "m:f" ( # one\n'
        "  # two\n"
        ")\n"
        "# Described.\n"
        "schedule a:\n"
        "    stream s\n"
        "  # not a description\n"
        "schedule b:\n"
        "    stream s\n"
        " # nor this\n"
        "# but this\n"
        "schedule c:\n"
        "    stream s\n"
    )
    assert formatted(text) == (
        "dfs 1\n"
        'model "m:f"  # one\n'
        "# two\n"
        "\n"
        "# Described.\n"
        "schedule a:\n"
        "    stream s\n"
        "# not a description\n"
        "\n"
        "schedule b:\n"
        "    stream s\n"
        "# nor this\n"
        "\n"
        "# but this\n"
        "schedule c:\n"
        "    stream s\n"
    )


def test_a_table_that_would_be_too_wide_is_none() -> None:
    long = "x" * 60
    text = schedule(
        "    order:",
        f"        {long} | b",
        f"        a | {long}",
    )
    assert formatted(text) == text


def test_errors_are_given_back() -> None:
    result = format_source(Source("a.dfs", "dfs 1\nschedul x:\n"))
    assert result.value is None
    assert [each.code for each in result.diagnostics] == ["DFS004"]


def test_what_only_its_layout_makes_too_large_is_refused() -> None:
    operands = " + ".join(["x"] * 201)
    source = Source("a.dfs", schedule(f"    part p = {operands}"))
    assert parse(source).ok
    result = format_source(source)
    assert result.value is None
    (found,) = result.diagnostics
    assert (found.code, found.message) == (
        "DFS006",
        "this statement is too large to be laid out",
    )
    assert found.primary is not None
    assert found.primary.span.text == f"part p = {operands}"
