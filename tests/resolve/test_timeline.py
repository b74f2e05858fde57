from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.resolve.model import Schedule, Section
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse


def schedule(text: str) -> Schedule:
    tree = parse(Source("a.dfs", text)).unwrap()
    return resolve(tree).unwrap().schedules[0]


def each(
    timeline: str,
    *parts: str,
    split: str = "split batch into 2 as mb",
    streams: str = "comm",
) -> Section:
    lines = ["dfs 1", "schedule s:"]
    lines += [f"    stream {name}" for name in streams.split()]
    lines += [f"    {split}"] * bool(split)
    lines += ["    each layer in .model.layers.*:"]
    lines += [f"        part {part}" for part in parts]
    head, *windows = timeline.split("\n")
    lines += [f"        {head}:"]
    lines += [f"            {window.strip()}" for window in windows]
    return schedule("\n".join(lines) + "\n").sections[0]


def texts(found: Section) -> list[str]:
    return [window.text for window in found.windows]


FOUR = ("attn = .a", "attn_reduce on comm = .b", "mlp = .c", "mlp_reduce on comm = .d")


def test_stagger_is_the_table_of_the_language() -> None:
    found = each("stagger mb by 1\nattn\nattn_reduce\nmlp\nmlp_reduce", *FOUR)
    assert texts(found) == [
        "attn[0] | prev.mlp_reduce[1]",
        "attn_reduce[0] | attn[1]",
        "mlp[0] | attn_reduce[1]",
        "mlp_reduce[0] | mlp[1]",
    ]
    assert found.timeline == "stagger"
    assert [[run.stream for run in window.runs] for window in found.windows] == [
        ["main", "comm"],
        ["comm", "main"],
        ["main", "comm"],
        ["comm", "main"],
    ]


def test_stagger_of_halves() -> None:
    found = each("stagger mb\nattn\nmlp", "attn on comm = .a", "mlp = rest")
    assert texts(found) == ["attn[0] | prev.mlp[1]", "mlp[0] | attn[1]"]


def test_steps_of_a_stagger_that_share_a_stream_form_one_run() -> None:
    found = each("stagger mb by 2\nattn\nattn_reduce\nmlp\nmlp_reduce", *FOUR)
    assert texts(found) == [
        "attn[0], prev.mlp[1]",
        "attn_reduce[0], prev.mlp_reduce[1]",
        "mlp[0], attn[1]",
        "mlp_reduce[0], attn_reduce[1]",
    ]
    assert all(len(window.runs) == 1 for window in found.windows)


def test_a_stagger_may_reach_back_one_whole_iteration() -> None:
    found = each("stagger mb by 2\nattn\nmlp", "attn on comm = .a", "mlp = rest")
    assert texts(found) == ["attn[0], prev.attn[1]", "mlp[0], prev.mlp[1]"]


def test_spans_of_a_stagger_are_those_of_its_stages() -> None:
    found = each("stagger mb\nattn\nmlp", "attn on comm = .a", "mlp = rest")
    first = found.windows[0]
    assert first.span.text == "attn"
    assert [run.steps[0].span.text for run in first.runs] == ["attn", "mlp"]
    assert found.timeline_span.text == "stagger mb:"


def test_a_step_without_an_index_stands_for_all_pieces_in_order() -> None:
    found = each("order\nattn, mlp", "attn = .a", "mlp on main = rest", streams="")
    assert texts(found) == ["attn[0], attn[1], mlp[0], mlp[1]"]
    assert len(found.windows[0].runs) == 1


def test_it_is_one_run_for_each_stream() -> None:
    found = each(
        "order\nattn, mlp",
        "attn on [s0, s1, s0] = .a",
        "mlp on [s0, s1, s0] = rest",
        split="split batch into 3 as mb",
        streams="s0 s1",
    )
    assert texts(found) == ["attn[0], attn[2], mlp[0], mlp[2] | attn[1], mlp[1]"]
    assert [run.stream for run in found.windows[0].runs] == ["s0", "s1"]


def test_indices_pick_the_stream_of_their_piece() -> None:
    found = each(
        "order\nattn[0] | attn[1]\nmlp",
        "attn on [comm, main] = .a",
        "mlp = rest",
    )
    assert [run.stream for run in found.windows[0].runs] == ["comm", "main"]


def test_without_a_split_steps_have_no_index() -> None:
    found = each(
        "order\nfetch | prev.body", "fetch on comm = .a", "body = rest", split=""
    )
    assert texts(found) == ["fetch | prev.body"]
    steps = [run.steps[0] for run in found.windows[0].runs]
    assert [(step.piece, step.previous) for step in steps] == [(0, False), (0, True)]


def test_windows_in_brackets_and_with_a_last_bar() -> None:
    found = each(
        "order\n(attn[0]\n| prev.mlp[1] |\n)\nattn[1] | mlp[0]",
        "attn on comm = .a",
        "mlp = rest",
    )
    assert texts(found) == ["attn[0] | prev.mlp[1]", "attn[1] | mlp[0]"]


@given(pieces=st.integers(2, 9), by=st.integers(0, 5), stages=st.integers(1, 9))
def test_stagger_places_everything_once(pieces: int, by: int, stages: int) -> None:
    names = [f"p{number}" for number in range(stages)]
    text = "dfs 1\nschedule s:\n    stream a\n    stream b\n"
    text += f"    split batch into {pieces} as mb\n    each layer in .l.*:\n"
    for number, name in enumerate(names):
        stream = " on a" if number == 0 else " on b" if number % 3 == 1 else ""
        text += f"        part {name}{stream} = .{name}\n"
    text = text if stages > 1 else text.replace("    stream b\n", "")
    text += f"        stagger mb by {by}:\n"
    text += "".join(f"            {name}\n" for name in names)
    result = resolve(parse(Source("a.dfs", text)).unwrap())
    if by * (pieces - 1) > stages:
        assert [found.code for found in result.diagnostics] == ["DFS307"]
        return
    windows = result.unwrap().schedules[0].sections[0].windows
    assert len(windows) == stages
    seen = set()
    for k, window in enumerate(windows):
        streams = [run.stream for run in window.runs]
        assert len(streams) == len(set(streams))
        for run in window.runs:
            assert [step.piece for step in run.steps] == sorted(
                step.piece for step in run.steps
            )
            for step in run.steps:
                seen.add((step.part, step.piece))
                # The piece is at its stage once it has waited for those before it.
                late = by * step.piece
                position = names.index(step.part) + late
                assert position == k + (stages if step.previous else 0)
    assert (
        len(seen)
        == stages * pieces
        == sum(len(run.steps) for window in windows for run in window.runs)
    )
