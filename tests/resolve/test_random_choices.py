"""Random selects, against every size that a small entry has."""

from __future__ import annotations

from random import Random

import pytest

from dynaflow_dsl.resolve import EntrySizes, Facts, choose, resolve
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse

SCHEDULE = """
schedule cut:
    split batch into 2 as half

    each layer in .layers.*:
        part a = .a
        part b = rest

        stagger half by 1:
            a
            b
"""
COMPARED = ("<", "<=", ">", ">=", "==", "!=")


def number(random: Random, names: tuple[str, ...], depth: int = 0) -> str:
    chance = random.random()
    if depth > 2 or chance < 0.4:
        return random.choice(names)
    if chance < 0.55:
        return str(random.randint(0, 12))
    operator = random.choice(("+", "-", "*", "//", "%"))
    right = (
        str(random.randint(1, 7))
        if operator in ("//", "%")
        else number(random, names, depth + 1)
    )
    return f"({number(random, names, depth + 1)} {operator} {right})"


def condition(random: Random, names: tuple[str, ...], depth: int = 0) -> str:
    chance = random.random()
    if depth < 2 and chance < 0.4:
        left = condition(random, names, depth + 1)
        if chance < 0.1:
            return f"not ({left})"
        word = random.choice(("and", "or"))
        return f"({left} {word} {condition(random, names, depth + 1)})"
    left = f"({random.choice(names)} + {number(random, names)})"
    if chance < 0.5:
        # Small remainders are what one line and then another have in full.
        left, values = f"{left} % {random.randint(1, 3)}", random.sample((0, 1, 2), 2)
        return f"{left} in {values}"
    if chance < 0.6:
        values = (str(random.randint(0, 30)) for _ in range(random.randint(1, 4)))
        return f"{left} in [{', '.join(values)}]"
    return f"{left} {random.choice(COMPARED)} {number(random, names, 1)}"


@pytest.mark.parametrize("seed", range(150))
def test_lines_are_reached_as_sizes_say(seed: int) -> None:
    random = Random(seed)
    names = random.choice((("batch",), ("batch", "seq")))
    lines = [condition(random, names) for _ in range(random.randint(1, 3))]
    whens = "".join(f"    when {line}: cut\n" for line in lines)
    text = f"dfs 1\n\nselect pick:\n{whens}    else: sequential\n{SCHEDULE}"
    file = resolve(parse(Source("s.dfs", text)).unwrap()).unwrap()
    assert file.select is not None
    high = random.choice((1, 2, 7, 40))
    bounds = {"batch": (1, high), "seq": (random.choice((0, 1, 3)), 5)}
    entry = EntrySizes("run", tuple((name, *bounds[name]) for name in names))
    chosen = choose(file.select, Facts({}), [entry])

    def line_of(sizes: dict[str, int]) -> int:
        holds = (eval(line, {}, sizes) for line in lines)
        return next((k for k, each in enumerate(holds) if each), len(lines))

    reached = {
        line_of({"batch": batch, "seq": seq})
        for batch in range(1, high + 1)
        for seq in range(bounds["seq"][0], 6)
    }
    refused = [each for each in chosen.diagnostics if each.code == "DFS120"]
    assert len(refused) == len(lines) + 1 - len(reached), text
    if chosen.value is None:
        return
    (choices,) = chosen.value.entries
    assert {line.line for line in choices.lines} == reached
    for line in choices.lines:
        if line.example:
            assert line_of({"seq": 0, **dict(line.example)}) == line.line
