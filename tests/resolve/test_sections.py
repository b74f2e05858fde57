from __future__ import annotations

from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.resolve.model import Schedule, Step
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse

LAYERS = """
    each layer in .layers.*:
        part a on side = .a
        part b = rest
        stagger half by 1:
            a
            b
"""
WHOLE = """
    part embed = .embed
    part head on side = .head
    {timeline}
"""


def file(*sections: str) -> str:
    return "dfs 1\nschedule s:\n    stream side\n    split batch into 2 as half" + (
        "".join(sections)
    )


def schedule(*sections: str) -> Schedule:
    tree = parse(Source("a.dfs", file(*sections))).unwrap()
    return resolve(tree).unwrap().schedules[0]


def digest(*sections: str) -> str:
    return resolve(parse(Source("a.dfs", file(*sections))).unwrap()).unwrap().digest


def order(*windows: str) -> str:
    return "order:\n" + "".join(f"        {window}\n" for window in windows)


def whole(timeline: str) -> str:
    return WHOLE.format(timeline=timeline)


def test_sections_stand_where_their_timelines_stand() -> None:
    parts, timeline = whole(order("embed | head")).split("    order")
    first = schedule(whole(order("embed | head")), LAYERS)
    assert [s.each.name if s.each else "" for s in first.sections] == ["", "layer"]
    assert [part.name for part in first.parts] == ["embed", "head", "a", "b"]
    # The parts above, the timeline below: the timeline says where it runs.
    last = schedule(parts, LAYERS, f"\n    order{timeline}")
    assert [s.each.name if s.each else "" for s in last.sections] == ["layer", ""]
    assert digest(parts, LAYERS, f"\n    order{timeline}") != digest(
        whole(order("embed | head")), LAYERS
    )


def test_a_stagger_outside_each_goes_on_to_its_end() -> None:
    (section,) = schedule(
        whole("stagger half by 1:\n        embed\n        head")
    ).sections
    assert [window.text for window in section.windows] == [
        "embed[0]",
        "head[0] | embed[1]",
        "head[1]",
    ]
    assert section.each is None
    same = order("embed[0]", "head[0] | embed[1]", "head[1]")
    assert digest(whole(same)) == digest(
        whole("stagger half by 1:\n        embed\n        head")
    )


def steps(*windows: str) -> list[Step]:
    (section,) = schedule(whole(order(*windows))).sections
    return [s for w in section.windows for run in w.runs for s in run.steps]


def test_a_step_for_all_pieces_at_once() -> None:
    embed, *_ = steps("embed[*]", "head")
    assert (embed.part, embed.piece) == ("embed", None)
    (section,) = schedule(whole(order("embed[*]", "head"))).sections
    assert section.windows[0].text == "embed[*]"
    assert digest(whole(order("embed[*]", "head"))) != digest(
        whole(order("embed", "head"))
    )


def after(*windows: str) -> list[list[tuple[str, int | None]]]:
    return [[(s.part, s.piece) for s in step.after] for step in steps(*windows)]


def test_what_a_step_comes_after() -> None:
    one = after("embed[0]", "head[0] after embed[0]", "embed[1]", "head[1]")
    assert one == [[], [("embed", 0)], [], []]
    # Without an index it is all pieces, for each of them.
    both = [("embed", 0), ("embed", 1)]
    assert after("embed", "head after embed") == [[], [], both, both]
    assert after("embed", "head after embed[*]") == [[], [], both, both]
    assert after("embed[*]", "head after embed") == [
        [],
        [("embed", None)],
        [("embed", None)],
    ]
    (section,) = schedule(
        whole(order("embed", "head[0] after embed", "head[1]"))
    ).sections
    assert section.windows[1].text == "head[0] after embed"
    assert digest(whole(order("embed", "head after embed"))) != digest(
        whole(order("embed", "head"))
    )


def test_after_a_step_of_the_iteration_before() -> None:
    (section,) = schedule(
        LAYERS.replace(
            "stagger half by 1:\n            a\n            b",
            "order:\n            a[0] after prev.b\n            a[1]\n            b",
        )
    ).sections
    first = section.windows[0].runs[0].steps[0]
    assert [(s.part, s.piece, s.previous) for s in first.after] == [
        ("b", 0, True),
        ("b", 1, True),
    ]
    assert section.windows[0].text == "a[0] after prev.b"


FETCHED = """
    each layer in .layers.*:
        part fetch on side = weights in {operand}
        part b = rest
        order:
            {fetch} | prev.b
"""


def test_weights_are_brought_once_for_all_pieces() -> None:
    plain = schedule(FETCHED.format(operand=".", fetch="fetch"))
    (section,) = plain.sections
    fetch, other = section.parts
    assert (fetch.fetches, other.fetches) == (True, False)
    (window,) = section.windows
    assert [step.piece for run in window.runs for step in run.steps] == [None, 0, 1]
    assert window.text == "fetch[*] | prev.b[0], prev.b[1]"
    # Written or not, it means the same.
    assert digest(FETCHED.format(operand=".", fetch="fetch[*]")) == digest(
        FETCHED.format(operand="(.)", fetch="fetch")
    )
    assert digest(FETCHED.format(operand=".a", fetch="fetch")) != digest(
        FETCHED.format(operand=".", fetch="fetch")
    )
