from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynaflow_dsl.diagnostics import Result, render
from dynaflow_dsl.resolve import Facts, ScheduleFile, decide, resolve
from dynaflow_dsl.resolve.values import decimal, evaluate, written
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse

TEXT = """\
dfs 1
schedule s({parameters}):
    require {require}
    stream side
    split batch into {into} as half (align = {align})
    each layer in .layers.*:
        part attn on side = .self_attn
        part mlp = rest
        stagger half by 0:
            attn
            mlp
"""


def resolved(
    parameters: str,
    into: str = "2",
    align: str = "1",
    require: str = "true",
    **given_: str,
) -> Result[ScheduleFile]:
    text = TEXT.format(parameters=parameters, into=into, align=align, require=require)
    return resolve(parse(Source("a.dfs", text)).unwrap(), parameters=given_)


def values(file: ScheduleFile) -> dict[str, Any]:
    return {each.name: each.value for each in file.schedules[0].parameters}


def test_defaults_and_what_is_given() -> None:
    file = resolved("ways = 2, tile = 8", "ways", "tile").unwrap()
    assert values(file) == {"ways": 2, "tile": 8}
    split = file.schedules[0].split
    assert split is not None
    assert (len(split.weights), split.align) == (2, 8)
    file = resolved("ways = 2, tile = 8", "ways", "tile", ways="3").unwrap()
    assert values(file) == {"ways": 3, "tile": 8}
    assert file.given == (("ways", "3"),)
    assert file.schedules[0].pieces == 3


def test_a_default_follows_the_parameters_before_it() -> None:
    text = "ways = 2, tile = ways * 8"
    assert values(resolved(text, "ways", "tile", ways="4").unwrap())["tile"] == 32


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        ("2", "-3", -3),
        ("0.5", "0.25", Fraction(1, 4)),
        ("0.5", "2", Fraction(2)),
        ("true", "false", False),
        ('"x"', "12", "12"),
        ('"x"', "", ""),
        ("[1, 2]", "[3, 4, 5]", (3, 4, 5)),
        ("[1, 2]", "3,4", (3, 4)),
        ("[1, 0.5]", "0.25, 3", (Fraction(1, 4), Fraction(3))),
        ('["a"]', '["b", c]', ("b", "c")),
        ("[true]", "false", (False,)),
    ],
)
def test_given_values_have_the_kind_of_the_default(
    default: str, text: str, value: object
) -> None:
    file = resolved(f"p = {default}", require="p == p", p=text).unwrap()
    found = values(file)["p"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("default", "text"),
    [
        ("2", "2.5"),
        ("2", "true"),
        ("2", "\u0663"),
        ("2", "9" * 19),
        ("0.5", "nan"),
        ("0.5", "1e5"),
        ("true", "1"),
        ('"x"', 'a"'),
        ('"x"', "a\nb"),
        ("[1]", "[]"),
        ("[1]", "[1"),
        ("[1]", "[[1]]"),
    ],
)
def test_other_values_are_refused(default: str, text: str) -> None:
    (found,) = resolved(f"p = {default}", require="p == p", p=text).diagnostics
    assert found.code == "DFS108"


def test_the_digest_follows_values_and_conditions() -> None:
    def digest(
        parameters: str = "ways = 2", require: str = "true", **given_: str
    ) -> str:
        return resolved(parameters, "ways", "1", require, **given_).unwrap().digest

    assert digest() == digest(ways="2") == digest("ways = 1 + 1")
    assert digest() == digest(require="(true)")
    changes = {
        digest(),
        digest(ways="3"),
        digest("way = 2, ways = way"),
        digest(require="false"),
        digest(require="not false"),
        digest(require="tp == 2"),
        digest(require="tp in [2]"),
        digest(require="tp > 2 and tp < 4"),
    }
    assert len(changes) == 8


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("1 < 2 and 2 <= 2 and 3 > 2 and 3 >= 3", True),
        ("1 == 1.0", True),
        ("1 != 2", True),
        ('"a" == "b"', False),
        ("1 in [2, 1]", True),
        ("1 in [2, 3]", False),
        ("not 1 > 2", True),
        ("false or true", True),
        ("[1, 2] == [1, 2]", True),
        # The right side is not computed where the left one decides.
        ("1 > 2 and 1 // 0 == 1", False),
        ("1 < 2 or 1 // 0 == 1", True),
    ],
)
def test_conditions(condition: str, value: bool) -> None:
    tree = parse(Source("a.dfs", f'dfs 1\nmodel "m" (x = {condition})\n')).unwrap()
    assert tree.model is not None
    found: list[Any] = []
    assert evaluate(tree.model.options[0].value, found, {}) is value
    assert found == []


@given(st.decimals(-(10**15), 10**15, places=6))
def test_decimals_are_written_with_all_digits(number: Any) -> None:
    assert Fraction(decimal(Fraction(number))) == Fraction(number)


NAMES = st.sampled_from(["a", "b", "tp", "layers"])
ODD_NAMES = st.sampled_from(["batch", "half", "side", "walk", "c"])
ATOMS = (
    st.integers(0, 10**18 - 1).map(str)
    | st.decimals(0, 99, places=3).map(str)
    | st.sampled_from(["true", "false", '"x"', '""', "0", "1", "2", "64"])
    | NAMES
    | ODD_NAMES
)


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = ["+", "-", "*", "//", "%", "==", "!=", "<", ">=", "and", "or"]
    return (
        st.tuples(inner, st.sampled_from(signs), inner).map(" ".join).map("({})".format)
        | inner.map("(not {})".format)
        | st.lists(inner, min_size=1, max_size=3).map(", ".join).map("[{}]".format)
        | st.tuples(inner, inner).map(lambda pair: f"({pair[0]} in [{pair[1]}])")
    )


EXPRESSIONS = st.recursive(ATOMS, _joined, max_leaves=6)
PLAIN = st.integers(1, 9).map(str)
CONDITIONS = st.tuples(
    PLAIN | NAMES, st.sampled_from(["<", ">=", "==", "!="]), PLAIN | NAMES
)
GIVEN = st.dictionaries(NAMES, st.text(max_size=6) | ATOMS | EXPRESSIONS, max_size=3)
FACTS = st.dictionaries(
    NAMES,
    st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    max_size=3,
)


@settings(deadline=None, max_examples=400)
@given(
    st.dictionaries(
        NAMES | ODD_NAMES, PLAIN | ATOMS | EXPRESSIONS, min_size=1, max_size=3
    ).map(lambda found: list(found.items())),
    st.just("2") | EXPRESSIONS,
    st.just("1") | EXPRESSIONS,
    CONDITIONS.map(" ".join) | EXPRESSIONS,
    st.just({}) | GIVEN,
    FACTS,
    FACTS | st.none(),
)
def test_any_values_give_a_schedule_or_diagnostics(
    parameters: list[tuple[str, str]],
    into: str,
    align: str,
    require: str,
    given_: dict[str, str],
    facts: dict[str, Any],
    target: dict[str, Any] | None,
) -> None:
    # Every parameter is used, so that most examples get further than to DFS103.
    uses = " and ".join(f"{name} == {name}" for name, _ in parameters)
    text = TEXT.format(
        parameters=", ".join(f"{name} = {value}" for name, value in parameters),
        into=into,
        align=align,
        require=f"({require}) and {uses}",
    )
    parsed = parse(Source("a.dfs", text))
    if parsed.value is None:
        return
    found = resolve(parsed.value, parameters=given_)
    assert found.ok == (not found.diagnostics) == (found.value is not None)
    render(found.diagnostics)
    if found.value is None:
        return
    for each in found.value.schedules[0].parameters:
        written(each.value)
    decided = decide(found.value, Facts(facts, target, ("batch",)))
    assert decided.ok or decided.diagnostics
    render(decided.diagnostics)


@pytest.mark.parametrize(
    ("size", "require", "kept"),
    [
        (4, "rank < world_size", False),
        (4, "rank == 0", True),
        (10**18, "rank < world_size", True),
        (10**18, "rank == 0", True),
    ],
)
def test_ranks_are_asked_as_far_as_there_may_be_some(
    size: int, require: str, kept: bool
) -> None:
    text = TEXT.format(parameters="a = 1", into="2", align="a", require=require)
    parsed = parse(Source("a.dfs", text))
    assert parsed.value is not None
    found = resolve(parsed.value).value
    assert found is not None
    decided = decide(found, Facts({"rank": 0, "world_size": size}, {}, ("batch",)))
    assert decided.value is not None
    assert ("rank" in {fact.name for fact in decided.value}) == kept
