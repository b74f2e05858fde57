"""Weights that are brought: how many buffers, and what the waits between steps are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import pytest

from dynaflow_dsl.bind import bind
from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.pipeline import understand
from dynaflow_dsl.plan import plan
from dynaflow_dsl.plan.model import Call, Plan, Wait
from dynaflow_dsl.prove import prove
from dynaflow_dsl.source import Source
from tests.bind.graphs import graph
from tests.prove.program_mutations import removals
from tests.prove.schedules import Scheduled, weighted, written
from tests.simulator.text import judge

# The package gives the name of this module to its function.
PLANNING = sys.modules["dynaflow_dsl.plan.plan"]
LAYERS = 4
PARTS = {
    "one": "part fetch on copy = weights in .",
    "two": """part fetch on copy = weights in .a
        part more on copy = weights in .b""",
}
TEXT = """    stream copy
    stream side
    each layer in .layers.*:
        {fetches}
        part a = .a
        part b on side = .b
        part c = .c
        order:
            {windows}
"""


def schedule(windows: list[str], fetches: str = "one") -> str:
    listed = "\n            ".join(windows)
    return TEXT.format(fetches=PARTS[fetches], windows=listed)


def scheduled(windows: list[str], fetches: str = "one") -> Scheduled:
    return written(weighted(LAYERS), schedule(windows, fetches))


@pytest.mark.parametrize(
    ("windows", "buffers"),
    [
        (["fetch", "a", "b", "c"], 1),
        # The last reader is b: c has no weights.
        (["fetch | prev.c", "a", "b"], 1),
        (["fetch | prev.b", "prev.c", "a"], 2),
        (["prev.b | fetch", "prev.c", "a"], 2),
        (["fetch", "prev.b", "prev.c", "a"], 2),
        (["prev.b", "fetch", "prev.c", "a"], 1),
        (["fetch | prev.a", "prev.b", "prev.c"], 2),
        (["prev.a", "prev.b | fetch", "prev.c"], 2),
    ],
)
def test_as_few_buffers_as_the_windows_need(windows: list[str], buffers: int) -> None:
    made = scheduled(windows)
    assert made.plan.buffers == {"fetch": buffers}
    assert prove(made.plan).ok
    # With one less, something is overwritten while it is read.
    fewer = Plan(
        made.plan.binding,
        made.plan.streams,
        made.plan.step,
        made.plan.sequential,
        {"fetch": buffers - 1},
    )
    assert prove(fewer).value is None


def test_each_part_that_brings_has_buffers_of_its_own() -> None:
    made = scheduled(["fetch | prev.b", "more | prev.c", "a"], "two")
    # Those of `a` are read before the next ones come, those of `b` are not.
    assert made.plan.buffers == {"fetch": 1, "more": 1}
    made = scheduled(["fetch, more | prev.b", "prev.c", "a"], "two")
    assert made.plan.buffers == {"fetch": 1, "more": 2}


def waits(made: Plan) -> list[tuple[str, str, str, str]]:
    """Stream, event and reason of each wait of the loop, and the call it precedes."""
    loop = next(s for s in made.step.segments if hasattr(s, "stop"))
    statements = [s for block in loop.blocks for s in block.statements]
    calls = [(n, s.label) for n, s in enumerate(statements) if isinstance(s, Call)]
    return [
        (s.stream, s.event, s.weights, next(label for n, label in calls if n > k))
        for k, s in enumerate(statements)
        if isinstance(s, Wait)
    ]


def test_steps_of_a_window_do_not_wait_for_each_other() -> None:
    """Each waits for an earlier run of the other, whose event the other gives anew."""
    text = """    stream copy
    each layer in .layers.*:
        part fetch on copy = weights in .
        part body = rest
        order:
            {window}
"""
    for window, first in (
        ("fetch | prev.body", "fetch"),
        ("prev.body | fetch", "prev.body"),
    ):
        made = written(weighted(LAYERS), text.format(window=window)).plan
        assert sorted(waits(made)) == [
            ("copy", "body_done", "fills", first),
            ("main", "fetch_done", "reads", first),
        ]


def windows_at_random(random: Random, fetches: list[str]) -> list[str]:
    """Every step once: some of the layer before among those of this one, some side by
    side, and now and then two in the wrong order."""
    steps = [*fetches, "a", "b", "c"]
    cut = random.randrange(1, len(steps) + 1)
    now, before = steps[:cut], [f"prev.{one}" for one in steps[cut:]]
    named = []
    while now or before:
        mine = now and (not before or random.random() < len(now) / len(steps))
        named.append((now if mine else before).pop(0))
    if random.random() < 0.3:
        k = random.randrange(len(named) - 1)
        named[k], named[k + 1] = named[k + 1], named[k]
    on = {"a": "main", "c": "main", "b": "side"}
    windows: list[list[list[str]]] = []
    for one in named:
        stream = on.get(one.removeprefix("prev."), "copy")
        last = windows[-1] if windows else []
        streams = {on.get(run[0].removeprefix("prev."), "copy"): run for run in last}
        choice = random.random()
        if last and choice < 0.35 and stream not in streams:
            last.append([one])
        elif last and choice < 0.5 and stream in streams:
            streams[stream].append(one)
        else:
            windows.append([[one]])
    return [" | ".join(", ".join(run) for run in window) for window in windows]


def attempts(count: int) -> Iterator[tuple[str, Binding, list[str]]]:
    made = graph(weighted(LAYERS))
    for seed in range(count):
        random = Random(seed)
        kind = random.choice(list(PARTS))
        names = ["fetch"] if kind == "one" else ["fetch", "more"]
        windows = windows_at_random(random, names)
        text = schedule(windows, kind)
        file = understand(Source("s.dfs", f"dfs 1\n\nschedule s:\n{text}"))
        if file.value is not None:
            bound = bind(file.value.schedules[0], made)
            yield text, bound.unwrap(), windows


def test_timelines_at_random() -> None:
    """What is planned is proved and safe, and every wait is needed; what is refused
    would be with any number of buffers."""
    planned = refused = 0
    for text, binding, windows in attempts(260):
        result = plan(binding)
        if result.value is None:
            refused += 1
            codes = {found.code for found in result.diagnostics}
            assert codes <= {"DFS301", "DFS302", "DFS308"}, windows
            names = [part.name for part in binding.parts if part.fetches]
            for count in range(1, LAYERS + 1):
                chosen = dict.fromkeys(names, count)
                with patch.object(
                    PLANNING, "count_buffers", lambda *_, chosen=chosen: chosen
                ):
                    assert plan(binding).value is None, (windows, count)
            continue
        planned += 1
        assert prove(result.value).ok, windows
        made = written(weighted(LAYERS), text)
        assert judge(made.text()) == [], windows
        idle = [
            m.what
            for m in removals(result.value)
            if m.kind == "Wait removed" and prove(m.plan).value is not None
        ]
        assert idle == [], windows
    assert planned > 25
    assert refused > 25
