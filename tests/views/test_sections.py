"""Views of a schedule with several sections."""

from __future__ import annotations

from dynaflow_dsl.bind import bind
from dynaflow_dsl.pipeline import understand
from dynaflow_dsl.resolve.model import Schedule
from dynaflow_dsl.source import Source
from dynaflow_dsl.views.data import parts_data, schedule_data
from dynaflow_dsl.views.gantt import gantt
from dynaflow_dsl.views.parts import parts
from dynaflow_dsl.views.windows import windows
from tests.bind.graphs import graph, repeat

TEXT = """dfs 1

schedule s:
    stream side

    split batch into 2 as half

    part left on side = .left
    part right = .right

    order:
        left[*] | right

    each layer in .layers.*:
        part a on side = .a
        part b = .b

        order:
            a[0] | prev.b[1]
            a[1] after a[0] | b[0]
"""
LAYER = "a%i = relu(h%i) @ layers.%i.a\nh%n = add.Tensor(a%i, h%i) @ layers.%i.b"
GRAPH = f"""
    input x
    u = relu(x) @ left
    v = relu(x) @ right
    h0 = add.Tensor(u, v) @ join
    {
    repeat(LAYER, 4)
    .replace("(h2)", "(g2)")
    .replace(", h2)", ", g2)")
    .replace("a2 =", "g2 = relu(h2) @ bridge" + chr(10) + "a2 =")
}
    return h4
"""


def schedule() -> Schedule:
    return understand(Source("s.dfs", TEXT)).unwrap().schedules[0]


def test_windows_of_every_section() -> None:
    assert (
        windows(schedule(), (1, 4))
        == """\
s: streams main, side; batch in 2 pieces as half
the whole model

once:
    left[*] | right[0], right[1]

each layer in .layers.*

layer 0:
    a[0]
    a[1] after a[0] | b[0]

layer 1 to 3:
    a[0]            | prev.b[1]
    a[1] after a[0] | b[0]

after the last layer:
    prev.b[1]
"""
    )


def test_a_chart_of_every_section() -> None:
    assert (
        gantt(schedule(), (1, 2), width=120)
        == """\
     once               layer 0        layer 1        after
main|right[0], right[1]|       |b[0] 0|b[1] 0 |b[0] 1|b[1] 1|
side|left[*]           |a[0] 0 |a[1] 0|a[0] 1 |a[1] 1|      |
"""
    )


def test_gaps_are_listed_with_the_parts() -> None:
    binding = bind(schedule(), graph(GRAPH)).unwrap()
    text = parts(binding)
    assert "left: once, on side, 1 operation\n    .left\n" in text
    assert "gap: before layer 0, on main, 1 operation\n    .join\n" in text
    assert "gap: before layer 2, on main, 1 operation\n    .bridge\n" in text
    assert "a: layer 0 to 3, on side, 1 operation\n    .a\n" in text
    data = parts_data(binding)
    assert data["gaps"] == [
        {"section": 1, "iteration": 0},
        {"section": 1, "iteration": 2},
    ]


def test_sections_as_data() -> None:
    data = schedule_data(schedule(), None)
    whole, layers = data["sections"]  # type: ignore[misc]
    assert (whole["each"], layers["each"]) == (None, "layer")
    (block,) = whole["blocks"]
    assert block["block"] == "once"
    assert block["windows"][0][0]["steps"] == [
        {"part": "left", "piece": None, "previous": False, "after": []}
    ]
    assert layers["blocks"][0]["windows"][1][0]["steps"][0]["after"] == [
        {"part": "a", "piece": 0, "previous": False}
    ]
