"""One mistake in text that is used in several places is told once."""

from __future__ import annotations

from dynaflow_dsl.diagnostics import Diagnostic, render
from dynaflow_dsl.diagnostics.uses import once
from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse

TEXT = """dfs 1

schedule pieces(ways = 2, tile = 8):
    stream side (priority = urgent)

    split batch into ways as piece (align = tile)

    each layer in .layers.*:
        part expand on side = .up
        part reduce = rest

        stagger piece by 1:
            expand
            reduce

select by_size:
    when batch >= 64: pieces(ways = 3)
    when batch >= 16: pieces(tile = 16)
    else:             sequential
"""


def found(text: str) -> tuple[Diagnostic, ...]:
    return once(resolve(parse(Source("a.dfs", text)).unwrap()).diagnostics)


def test_it_is_told_with_all_uses() -> None:
    (one,) = found(TEXT)
    assert one.message == "there is no priority 'urgent'"
    assert {label.span.line for label in one.others} == {17, 18}
    assert render([one], "full").count("used here") == 2


def test_no_use_is_named_where_it_is_wrong_by_itself() -> None:
    (one,) = found(TEXT.replace("(tile = 16)", ""))
    assert one.others == ()


def test_what_differs_by_use_is_told_for_each() -> None:
    text = TEXT.replace(" (priority = urgent)", "").replace("= 16)", "= 0)")
    (one,) = found(text)
    assert [label.span.line for label in one.others] == [18]
    assert len(found(text.replace("= 3", "= 1"))) == 2


def test_what_has_no_place_is_kept() -> None:
    one = Diagnostic("DFS501", "a.py is stale")
    other = Diagnostic("DFS501", "a.py is stale")
    assert len(once([one, other])) == 2
