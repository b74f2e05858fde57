"""Each edit of a schedule is one sentence, and what is no edit is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

from dynaflow_dsl.comparison import Change, Comparison, compare
from dynaflow_dsl.comparison.render import as_markdown, as_text
from dynaflow_dsl.resources import folder
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import SyntaxTree, parse
from dynaflow_dsl.syntax.model import Each, Order, Schedule, Stagger
from tests.formatting.trees import TREES

EXAMPLES = Path(__file__).parents[1] / "syntax" / "examples"
FILES = sorted([*EXAMPLES.rglob("*.dfs"), *folder("schedules").rglob("*.dfs")])

BASE = """\
dfs 1

model "targets.py:stack" (layers = 3)

kernel fused = "kernels:fused" (trusted = true)

parts block:
    part attn on side = .norm + .attn
    part mlp = rest

# Two halves.
schedule halves(ways = 2, share = 0.5):
    require layers >= ways
    stream side (priority = high)
    stream copies
    split batch into [share, 0.5] as half (align = 8)
    capture batch at [1, 4, 16]

    each layer in .layers.*:
        use block
        part tail (rowwise = true) on copies via fused(a = 1) = .tail

        order:
            attn[0] | prev.mlp[1]
            mlp[0] | attn[1]
            tail

schedule other:
    each layer in .layers.*:
        part a = .a
        part b = rest

        stagger half by 1:
            a
            b

select best(small = 4):
    require layers >= 2
    when batch < small: other
    when batch < 64: halves
    else: sequential
"""


def tree(text: str, name: str = "a.dfs") -> SyntaxTree:
    return parse(Source(name, text)).unwrap()


def difference(old: str, new: str) -> Comparison:
    return compare(tree(old), tree(new), {}, {})


def edited(*pairs: tuple[str, str]) -> Comparison:
    text = BASE
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return difference(BASE, text)


ORDER = "the choices stand in another order"
WINDOW = "window 1 is `attn[0], prev.mlp[1]` now, was `attn[0] | prev.mlp[1]`"
WINDOWS = {
    # Which of the two is issued first is in the module.
    "attn[0] | prev.mlp[1]": (
        "prev.mlp[1] | attn[0]",
        "schedule halves: window 1 is issued as `prev.mlp[1] | attn[0]` now, was "
        "`attn[0] | prev.mlp[1]`",
    ),
    "attn[0] | prev": (
        "attn[0], prev",
        "schedule halves: window 1 is `attn[0], prev.mlp[1]` now, was "
        "`attn[0] | prev.mlp[1]`",
    ),
    "            mlp[0] | attn[1]\n": (
        "            mlp[0]\n            attn[1]\n",
        "schedule halves: step `attn[1]` moved from window 2 (`mlp[0] | attn[1]`) to a "
        "window of its own, window 3",
    ),
    "            tail\n": (
        "",
        "schedule halves: window `tail` was removed from place 3",
    ),
    "            attn[0]": (
        "            extra\n            attn[0]",
        "schedule halves: window `extra` was added at the top",
    ),
    "mlp[0] | attn[1]\n": (
        "mlp[0] | attn[1] after mlp[0]\n",
        "schedule halves: window 2 is `mlp[0] | attn[1] after mlp[0]` now, was "
        "`mlp[0] | attn[1]`",
    ),
    "mlp[0] | attn[1]\n            tail": (
        "tail\n            mlp[0] | attn[1]",
        "schedule halves: window `tail` moved from place 3 to 2",
    ),
    "[1]\n            mlp[0] | attn": (
        "[1] | mlp[0]\n            attn",
        "schedule halves: step `mlp[0]` moved from window 2 (`mlp[0] | attn[1]`) to "
        "window 1, which is `attn[0] | prev.mlp[1] | mlp[0]` now",
    ),
    "            a\n            b\n": (
        "            b\n            a\n",
        "schedule other: stage `b` moved from place 2 to 1",
    ),
}
OTHERS = {
    "layers = 3)": (
        "layers = 4)",
        "argument of the model `layers` is `4` now, was `3`",
    ),
    "targets.py:stack": (
        "other.py:stack",
        'the model is `"other.py:stack"` now, was `"targets.py:stack"`',
    ),
    "trusted = true": (
        "trusted = false",
        "kernel fused: option `trusted` is `false` now, was `true`",
    ),
    "kernels:fused": (
        "kernels:other",
        'kernel fused: target is `"kernels:other"` now, was `"kernels:fused"`',
    ),
    "ways = 2": ("ways = 3", "schedule halves: parameter `ways` is `3` now, was `2`"),
    "(ways = 2, ": (
        "(tile = 8, ways = 2, ",
        "schedule halves: parameter `tile = 8` was added",
    ),
    "layers >= ways": (
        "layers > ways",
        "schedule halves: `require layers > ways` was `require layers >= ways`",
    ),
    "    require layers >= ways\n": (
        "",
        "schedule halves: `require layers >= ways` was removed",
    ),
    " (priority = high)": (
        "",
        "schedule halves: `stream side` was `stream side (priority = high)`",
    ),
    "    stream copies\n": (
        "    stream copies\n    stream network\n",
        "schedule halves: stream `network` was added",
    ),
    "[share, 0.5]": (
        "2",
        "schedule halves: `split batch into 2 (align = 8)` was "
        "`split batch into [share, 0.5] (align = 8)`",
    ),
    "split batch": (
        "split rows",
        "schedule halves: `split rows into [share, 0.5] (align = 8)` was "
        "`split batch into [share, 0.5] (align = 8)`",
    ),
    "as half": (
        "as piece",
        "schedule halves: the split's index is called `piece` now, was `half`",
    ),
    "[1, 4, 16]": (
        "[1, 4, 8, 16]",
        "schedule halves: `capture batch at [1, 4, 8, 16]` was "
        "`capture batch at [1, 4, 16]`",
    ),
    ".norm + .attn": (
        ".attn",
        "parts block: part `attn` takes `.attn` now, was `.norm + .attn`",
    ),
    "part attn on side": (
        "part attn on copies",
        "parts block: part `attn` runs on `copies` now, was on `side`",
    ),
    " via fused(a = 1)": (
        "",
        "schedule halves: part `tail` runs through nothing now, was `fused(a = 1)`",
    ),
    " (rowwise = true)": (
        "",
        "schedule halves: part `tail` has the options nothing now, was "
        "`(rowwise = true)`",
    ),
    "        part b = rest\n": (
        "        part b = rest\n        part c = .c\n",
        "schedule other: part `c = .c` was added",
    ),
    "stagger half by 1": (
        "stagger half by 2",
        "schedule other: the stagger goes by 2 now, was by 1",
    ),
    "batch < small": (
        "batch <= small",
        "select best: choice `batch <= small: other` was `batch < small: other`",
    ),
    "batch < 64: halves": (
        "batch < 64: sequential",
        "select best: choice `batch < 64` is `sequential` now, was `halves`",
    ),
}


def said(change: Change) -> str:
    return f"{change.where}: {change.sentence}".removeprefix(": ")


@pytest.mark.parametrize("old", [*WINDOWS, *OTHERS])
def test_one_edit_is_one_sentence(old: str) -> None:
    new, sentence = {**WINDOWS, **OTHERS}[old]
    found = edited((old, new))
    assert [said(change) for change in found.changes] == [sentence]
    assert not found.same_meaning


def test_renaming_a_part_is_one_sentence_wherever_it_is_used() -> None:
    text = BASE.replace("part a =", "part first =").replace(" a\n", " first\n")
    (change,) = difference(BASE, text).changes
    assert said(change) == "schedule other: part `a` is called `first` now"


def test_renaming_a_schedule_is_one_sentence() -> None:
    (change,) = edited(("schedule halves(", "schedule pieces(")).changes
    assert change.sentence == "schedule `halves` is called `pieces` now"


def test_several_edits_are_several_sentences_in_the_order_of_the_file() -> None:
    found = edited(("ways = 2", "ways = 3"), ("[1, 4, 16]", "[1]"), ("by 1", "by 0"))
    assert [change.where for change in found.changes] == [
        "schedule halves",
        "schedule halves",
        "schedule other",
    ]


@pytest.mark.parametrize(
    "new",
    [
        BASE.replace("# Two halves.", "# Another comment."),
        BASE.replace("attn[0] | prev.mlp[1]", "(\n  attn[0]\n  | prev.mlp[1])  # here"),
        BASE.replace("\n\n", "\n"),
    ],
)
def test_layout_and_comments_are_no_change(new: str) -> None:
    found = difference(BASE, new)
    assert found.changes == ()
    assert found.same_meaning
    assert not found.identical
    assert as_text(found) == "a.dfs: no change of meaning, only layout or comments"


def test_a_part_of_a_group_is_said_once_for_all_schedules() -> None:
    old = BASE.replace("        part a = .a\n", "        use block\n")
    new = old.replace(".norm + .attn", ".attn")
    (change,) = difference(old, new).changes
    assert change.where == "parts block"


def test_taking_parts_out_into_a_group_changes_nothing_but_the_words() -> None:
    inline = BASE.replace("        use block\n", "").replace(
        "        part tail (",
        "        part attn on side = .norm + .attn\n        part mlp = rest\n"
        "        part tail (",
    )
    found = difference(inline, BASE)
    assert {change.kind for change in found.changes} == {"written"}
    assert found.same_meaning


SECTIONS = (
    """\
    each layer in .text.*:
        part a = rest

        order:
            a
""",
    """\
    each block in .vision.*:
        part b = rest

        order:
            b
""",
    """\
    part c = .head

    order:
        c
""",
)


@pytest.mark.parametrize("places", [(1, 0, 2), (0, 2, 1), (2, 0, 1)])
def test_sections_in_another_order_are_a_change(places: tuple[int, ...]) -> None:
    one = "\n".join(["dfs 1\n\nschedule whole:", *SECTIONS])
    other = "\n".join(["dfs 1\n\nschedule whole:", *[SECTIONS[n] for n in places]])
    found = difference(one, other)
    said = ("`each layer in .text.*`", "`each block in .vision.*`")
    said += ("what stands outside of any `each`",)
    assert [change.sentence for change in found.changes] == [
        "the sections run in another order: "
        + ", then ".join(said[number] for number in places)
    ]
    assert not found.same_meaning


def test_choices_in_another_order_are_seen_beside_new_ones() -> None:
    one = """dfs 1

select best:
    when batch > 8: one
    when batch > 4: two
    else: sequential
"""
    first, second = "    when batch > 8: one\n", "    when batch > 4: two\n"
    third = "    when batch > 1: one\n"
    other = one.replace(first + second, second + first + third)
    assert [change.sentence for change in difference(one, other).changes] == [
        "choice `batch > 1: one` was added",
        "the choices stand in another order",
    ]


def test_a_file_that_comes_or_goes() -> None:
    came = compare(None, tree(BASE), {}, {})
    assert [change.sentence for change in came.changes] == [
        'the file names a model now, `"targets.py:stack"`',
        "kernel `fused` was added",
        "parts `block` was added",
        "schedule `halves` was added",
        "schedule `other` was added",
        "select `best` was added",
    ]
    went = compare(tree(BASE), None, {}, {})
    assert {change.kind for change in went.changes} == {"removed"}
    assert len(went.changes) == len(came.changes)


def test_markdown_is_a_heading_and_a_list() -> None:
    found = edited(("ways = 2", "ways = 3"))
    assert as_markdown(found) == (
        "#### `a.dfs`\n\n1 change.\n\n**schedule halves**\n\n"
        "- parameter `ways` is `3` now, was `2`"
    )


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_nothing_changes_from_a_file_to_itself(any_tree: SyntaxTree) -> None:
    found = compare(any_tree, any_tree, {}, {})
    assert found.changes == ()
    assert found.identical
    assert found.same_meaning


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_shipped_schedules_equal_themselves(file: Path) -> None:
    text = file.read_text()
    assert difference(text, text).changes == ()


def window_edits(text: str) -> Iterator[str]:
    """The text with one line of one timeline edited, in every way there is."""
    for schedule in tree(text).declarations:
        if not isinstance(schedule, Schedule):
            continue
        for each in schedule.statements:
            for timeline in each.body if isinstance(each, Each) else (each,):
                if not isinstance(timeline, Order | Stagger):
                    continue
                for window in timeline.windows:
                    span = window.span
                    line = span.text
                    forms = {
                        line.replace("[0]", "[1]", 1),
                        line.replace(" | ", ", ", 1),
                        line.rpartition(" | ")[0],
                        f"{line}, another",
                        f"{line} | another[0]" if isinstance(timeline, Order) else line,
                        f"other_{line}" if line[0].isalpha() else line,
                    }
                    for form in sorted(forms - {line, ""}):
                        yield text[: span.start] + form + text[span.end :]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_one_edited_window_is_one_sentence(file: Path) -> None:
    text = file.read_text()
    for new in window_edits(text):
        if parse(Source("a.dfs", new)).value is None:
            continue
        found = difference(text, new)
        assert len(found.changes) == 1, as_text(found)
        assert not found.same_meaning
