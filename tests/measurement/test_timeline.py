"""Work is given to steps by the marks around it, however lanes are numbered."""

from __future__ import annotations

from typing import Any

import pytest

from dynaflow_dsl.measurement.overlap import (
    ClaimedStep,
    ClaimedWindow,
    OverlapReport,
    WindowOverlap,
    measure_overlap,
    share,
)
from dynaflow_dsl.measurement.timeline import (
    TimedStep,
    Timeline,
    Work,
    device_timeline,
    host_timeline,
)
from dynaflow_dsl.runtime import LoadError
from dynaflow_dsl.runtime.watch import Step

ATTN = Step("attn[0]", "attn", "side", 1, 1, 16)
MLP = Step("mlp[1]", "mlp", "main", 0, 0, 17)


def kernel(name: str, lane: int, begin: float, end: float, grid: int = 1) -> Any:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "ts": begin,
        "dur": end - begin,
        "args": {"stream": lane, "grid": [grid, 1, 1]},
    }


def mark(slot: int, lane: int, time: float) -> Any:
    return kernel("dfsc_mark", lane, time, time + 0.5, grid=slot + 1)


def events(side: int, main: int, start: float = 0.0) -> list[Any]:
    """Two steps beside each other; the one on main ends first."""
    return [
        mark(0, side, start),
        mark(2, main, start + 1),
        kernel("gemm", side, start + 2, start + 6),
        kernel("norm", main, start + 3, start + 5),
        mark(3, main, start + 6),
        kernel("softmax", side, start + 7, start + 9),
        mark(1, side, start + 10),
        kernel("copy", main, start + 11, start + 12),
    ]


def names(timeline: Timeline) -> dict[tuple[str, int], list[str]]:
    return {
        (one.step.label, one.run): [work.name for work in one.work]
        for one in timeline.steps
    }


def test_kernels_belong_to_the_marks_around_them() -> None:
    timeline = device_timeline([*events(20, 7), *events(20, 7, 100.0)], (ATTN, MLP))
    assert names(timeline) == {
        ("attn[0]", 0): ["gemm", "softmax"],
        ("mlp[1]", 0): ["norm"],
        ("attn[0]", 1): ["gemm", "softmax"],
        ("mlp[1]", 1): ["norm"],
    }
    assert [one.name for one in timeline.outside] == ["copy", "copy"]


def test_what_lies_in_two_steps_of_one_lane_belongs_to_none() -> None:
    timeline = device_timeline(events(7, 7), (ATTN, MLP))
    assert names(timeline)["attn[0]", 0] == ["softmax"]
    assert {one.name for one in timeline.outside} == {"gemm", "norm", "copy"}


REDUCE = Step("reduce[0]", "reduce", "comm", 0, 0, 18)


@pytest.mark.parametrize("numbered", ["as made", "otherwise"])
def test_kernels_of_nccl_belong_to_the_collective_around_them(numbered: str) -> None:
    """They run on a stream of NCCL, beside steps of others."""
    end = 9 if numbered == "as made" else 40
    listed = [
        mark(0, 7, 0),
        mark(2, 9, 1),
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 33, 2, 6),
        kernel("gemm", 7, 2, 7),
        mark(3, end, 7),
        mark(1, 7, 8),
    ]
    found = names(device_timeline(listed, (MLP, REDUCE), {1}))
    assert found["reduce[0]", 0] == ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"]
    assert found["mlp[1]", 0] == ["gemm"]
    alone = device_timeline(listed, (MLP, REDUCE))
    assert [one.name[:4] for one in alone.outside] == ["nccl"]


def test_a_profiler_without_kernels_is_refused() -> None:
    with pytest.raises(LoadError, match="DFS808"):
        device_timeline([{"ph": "M", "name": "process_name"}], (ATTN,))


def test_ranges_of_the_cpu_hold_operators() -> None:
    def one(name: str, category: str, begin: float, end: float) -> Any:
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "ts": begin,
            "dur": end - begin,
        }

    timeline = host_timeline(
        [
            one("range 0", "user_annotation", 0, 10),
            one("aten::mm", "cpu_op", 1, 4),
            one("aten::cat", "cpu_op", 11, 12),
            one("range 1", "user_annotation", 13, 20),
            one("aten::add", "cpu_op", 14, 15),
        ],
        (ATTN, MLP),
        "range ",
        "work ",
    )
    assert names(timeline) == {
        ("attn[0]", 0): ["aten::mm"],
        ("mlp[1]", 0): ["aten::add"],
    }
    assert [work.name for work in timeline.outside] == ["aten::cat"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([(0, 10)], [(5, 9)], 1.0),
        ([(0, 10)], [(8, 12)], 0.5),
        ([(0, 4), (6, 10)], [(4, 6)], 0.0),
        ([(0, 4), (3, 10)], [(0, 20)], 1.0),
        ([(0, 1)], [(2, 3)], 0.0),
        ([(0, 0)], [(0, 1)], 0.0),
    ],
)
def test_the_share_is_of_the_shorter_one(
    one: list[tuple[float, float]], other: list[tuple[float, float]], expected: float
) -> None:
    assert share(one, other) == pytest.approx(expected)
    assert share(other, one) == pytest.approx(expected)


def timed(step: Step, run: int, begin: float, end: float) -> TimedStep:
    return TimedStep(step, run, begin - 1, end + 1, (Work("k", begin, end),), 0)


WINDOW = ClaimedWindow(
    "attn[0] | prev.mlp[1]",
    19,
    ((ClaimedStep("attn[0]", False),), (ClaimedStep("mlp[1]", True),)),
)


def test_windows_meet_their_iterations() -> None:
    """`prev.` is the iteration before, and each run is looked at by itself."""
    later = Step("mlp[1]", "mlp", "main", 1, 1, 17)
    timeline = Timeline(
        (
            timed(MLP, 0, 0, 4),
            timed(ATTN, 0, 1, 3),
            timed(later, 0, 1, 3),
            timed(MLP, 1, 10, 14),
            timed(ATTN, 1, 12, 16),
        ),
        (),
    )
    (found,) = measure_overlap(timeline, (WINDOW,))
    assert (found.claim, found.line, found.count) == (WINDOW.text, 19, 2)
    assert (found.least, found.median, found.most) == (0.5, 0.75, 1.0)


def report(
    *windows: WindowOverlap, minimum: float = 0.3, alone: bool = False
) -> OverlapReport:
    return OverlapReport(
        "m.py", "decode", "", 8, "cuda:0", "replayed", alone, minimum, windows
    )


def window(middle: float, most: float = 1.0, count: int = 4) -> WindowOverlap:
    return WindowOverlap("a | b", 7, "a | b", middle, 0.0, most, count)


def test_a_window_below_the_minimum_fails() -> None:
    assert report(window(0.3)).ok
    failed = report(window(0.31), window(0.29))
    assert not failed.ok
    assert "below 30%" in str(failed)
    assert report(window(0.0, count=0)).ok
    assert "not measured" in str(report(window(0.0, count=0)))


def test_the_control_may_not_overlap_at_all() -> None:
    assert report(window(0.0, most=0.0), minimum=0.0, alone=True).ok
    assert not report(window(0.0, most=0.0), alone=True).ok
    wrong = report(window(0.0, most=0.01), minimum=0.0, alone=True)
    assert not wrong.ok
    assert "these times mean nothing" in str(wrong)


def test_a_schedule_without_windows_is_fine() -> None:
    assert report().ok
    assert "claims no overlap" in str(report())
