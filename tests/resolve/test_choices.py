"""Which lines of a `select` are reached, against trying all sizes."""

from __future__ import annotations

import random

import pytest

from dynaflow_dsl.resolve import EntrySizes, Facts, Selection, choose, resolve
from dynaflow_dsl.resolve.intervals import UNBOUNDED, find_sizes
from dynaflow_dsl.resolve.model import Select
from dynaflow_dsl.resolve.values import evaluate_condition
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import model as syntax
from dynaflow_dsl.syntax import parse

SCHEDULE = """
schedule two(ways = 2):
    stream side
    split batch into ways as half
    each layer in .layers.*:
        part a on side = .a
        part b = rest
        stagger half by 1:
            a
            b
"""
DECODE = EntrySizes("decode", (("batch", 1, 1024),), (("seq", 1),))
PREFILL = EntrySizes("prefill", (("batch", 1, None), ("tokens", 1, None)))


def select(*lines: str, head: str = "select pick:") -> Select:
    body = "\n".join(f"    {line}" for line in lines)
    text = f"dfs 1\n{head}\n{body}\n{SCHEDULE}"
    file = resolve(parse(Source("s.dfs", text)).unwrap()).unwrap()
    assert file.select is not None
    return file.select


def chosen(
    tree: Select, *entries: EntrySizes, **facts: bool | int | float | str
) -> Selection:
    return choose(tree, Facts({}, facts), entries).unwrap()


def condition(text: str) -> syntax.Expression:
    written = f"dfs 1\nselect s:\n    when {text}: two\n    else: sequential\n"
    (tree,) = parse(Source("s.dfs", written)).unwrap().declarations
    assert isinstance(tree, syntax.Select)
    return tree.cases[0].condition


def random_number(random_: random.Random, depth: int) -> str:
    if depth == 0 or random_.random() < 0.3:
        return random_.choice(["x", "y", str(random_.randint(0, 12))])
    left, right = (random_number(random_, depth - 1) for _ in range(2))
    operator = random_.choice(["+", "-", "*", "//", "%"])
    if operator in ("//", "%"):
        right = str(random_.randint(1, 6))
    return f"({left} {operator} {right})"


def random_condition(random_: random.Random, depth: int) -> str:
    if depth > 0 and random_.random() < 0.6:
        left, right = (random_condition(random_, depth - 1) for _ in range(2))
        return random_.choice([f"({left} and {right})", f"({left} or {right})"])
    sign = random_.choice(["==", "!=", "<", "<=", ">", ">="])
    one, other = random_number(random_, 2), random_number(random_, 1)
    text = f"{one} {sign} {other}"
    if random_.random() < 0.2:
        text = f"{one} in [{random_.randint(0, 9)}, {random_.randint(0, 9)}]"
    return f"not ({text})" if random_.random() < 0.2 else f"({text})"


@pytest.mark.parametrize("seed", range(60))
def test_sizes_are_found_exactly_where_there_are_some(seed: int) -> None:
    random_ = random.Random(seed)
    wanted, *refused = (condition(random_condition(random_, 2)) for _ in range(3))
    bounds = {"x": (1, random_.randint(1, 14)), "y": (1, random_.randint(1, 14))}

    def reaches(x: int, y: int) -> bool:
        truths = [
            evaluate_condition(each, [], {"x": x, "y": y})
            for each in (wanted, *refused)
        ]
        return truths == [True, False, False]

    tried = [(x, y) for x in range(1, bounds["x"][1] + 1) for y in range(1, 15)]
    some = [(x, y) for x, y in tried if y <= bounds["y"][1] and reaches(x, y)]
    found = find_sizes(wanted, refused, bounds)
    assert found is not True
    assert bool(found) == bool(some)
    if found:
        assert reaches(found["x"], found["y"])


def test_borders_and_not_sizes_are_counted() -> None:
    bounds: dict[str, tuple[int, int | None]] = {"x": (1, None), "y": (1, None)}
    curve = condition("x * y >= 100000")
    assert find_sizes(condition("x * y >= 200000"), [curve], bounds) in (False, True)
    assert find_sizes(condition("x >= 64"), [condition("x >= 32")], bounds) is False
    last = find_sizes(condition(f"x >= {UNBOUNDED}"), [], bounds)
    assert last == {"x": UNBOUNDED, "y": 1}


def test_remainders_repeat() -> None:
    bounds: dict[str, tuple[int, int | None]] = {"x": (1, None)}
    even, fours = condition("x % 2 == 0"), condition("x % 4 == 0")
    assert find_sizes(fours, [even], bounds) is False
    assert find_sizes(even, [fours], bounds) == {"x": 2}
    assert find_sizes(condition("x % 7 == 3 and x > 1000000"), [], bounds) == {
        "x": 1000002
    }


def test_lines_are_folded_by_entry() -> None:
    tree = select(
        "when phase == prefill and batch * tokens >= large: two(ways = 3)",
        "when batch * seq >= small and moe: two",
        "else: sequential",
        head="select pick(small = 64, large = 4096):",
    )
    found = chosen(
        select(
            "when phase == prefill and batch * tokens >= large: two(ways = 3)",
            "when phase == decode and batch * seq >= small and moe: two",
            "else: sequential",
            head="select pick(small = 64, large = 4096):",
        ),
        DECODE,
        PREFILL,
        moe=True,
        other=3,
    )
    assert [fact.name for fact in found.facts] == ["moe"]
    lines = {e.entry: [chosen.line for chosen in e.lines] for e in found.entries}
    assert lines == {"decode": [1, 2], "prefill": [0, 2]}
    assert found.schedules("decode") == {"two"}
    assert found.schedules("prefill") == {"two_ways_3"}
    assert dict(found.entries[0].lines[0].example) == {"batch": 64}
    refused = choose(tree, Facts({}, {"moe": True}), (DECODE, PREFILL))
    assert [each.code for each in refused.diagnostics] == ["DFS102"]


def test_a_line_for_other_facts_is_no_mistake_and_makes_nothing() -> None:
    lines = (
        'when arch == "sm90" and batch >= 64: two',
        "when batch >= 64: two(ways = 3)",
        "else: sequential",
    )
    old = chosen(select(*lines), DECODE, arch="sm80")
    assert old.schedules("decode") == {"two_ways_3"}
    new = chosen(select(*lines), DECODE, arch="sm90")
    assert new.schedules("decode") == {"two"}
    # Whatever the fact is, this one is never reached.
    shadowed = (*lines[:2], 'when arch == "sm70" and batch >= 80: two', lines[2])
    refused = choose(select(*shadowed), Facts({}, {"arch": "sm80"}), (DECODE,))
    assert [each.code for each in refused.diagnostics] == ["DFS120"]


def test_ranks_choose_alike_when_equal_says_so() -> None:
    line = ("when batch >= 64: two", "else: sequential")
    several = Facts({}, {"tp_size": 1, "ep_size": 4})
    refused = choose(select(*line), several, (DECODE,))
    assert [each.code for each in refused.diagnostics] == ["DFS122"]
    assert choose(select("equal batch", *line), several, (DECODE,)).ok
    assert choose(select(*line), Facts({}, {"tp_size": 1}), (DECODE,)).ok


def test_names_of_schedules_say_their_arguments() -> None:
    tree = select(
        "when batch >= 64: two(ways = 3)",
        "when batch >= 32: two(ways = 2)",
        "when batch >= 16: two",
        "when batch >= 8: two(ways = more)",
        "else: sequential",
        head="select pick(more = 1 + 2):",
    )
    names = [line.schedule for line in tree.lines]
    assert names == ["two_ways_3", "two", "two", "two_ways_3", None]
