"""Generated trees: printed and read again they are the same."""

from __future__ import annotations

from hypothesis import HealthCheck, example, given, settings

from dynaflow_dsl.formatting import format_source, print_tree
from dynaflow_dsl.formatting.format import meaning
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import SyntaxTree, model, parse
from tests.formatting.trees import NOWHERE, SOURCE, TREES

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def number(value: int) -> model.Number:
    return model.Number(value, NOWHERE)


@settings(deadline=None, max_examples=200, suppress_health_check=SLOW)
@given(TREES)
@example(SyntaxTree(SOURCE, None, ()))
def test_printed_trees_are_read_again(tree: SyntaxTree) -> None:
    text = print_tree(tree)
    assert meaning(parse(Source("a.dfs", text)).unwrap()) == meaning(tree)
    assert format_source(Source("a.dfs", text)).unwrap() == text


@settings(deadline=None, max_examples=100, suppress_health_check=SLOW)
@given(TREES)
def test_lines_are_clean(tree: SyntaxTree) -> None:
    text = print_tree(tree)
    assert text.endswith("\n")
    assert "\n\n\n" not in text
    for line in text.splitlines():
        assert line == line.rstrip()
        assert (len(line) - len(line.lstrip())) % 4 == 0


def test_parentheses_stand_where_they_are_needed() -> None:
    one, two, three = map(number, (1, 2, 3))
    right = model.Arithmetic("-", two, three, NOWHERE)
    nested = model.Arithmetic("-", one, right, NOWHERE)
    require = model.Require(nested, NOWHERE)
    name = model.Name("s", NOWHERE)
    plan = model.Schedule(name, (), (require,), "", NOWHERE)
    assert print_tree(SyntaxTree(SOURCE, None, (plan,))) == (
        "dfs 1\n\nschedule s:\n    require 1 - (2 - 3)\n"
    )
