"""How long ranks wait for each other, and traces of several ranks on one axis."""

from __future__ import annotations

from typing import Any

import pytest

from dynaflow_dsl.measurement.profile import Profile
from dynaflow_dsl.measurement.rank_clocks import RankClock
from dynaflow_dsl.measurement.rank_meetings import Meetings, find_meetings
from dynaflow_dsl.measurement.summary_text import clock_lines, meeting_lines
from dynaflow_dsl.measurement.trace_file import Shown, shifts_of, trace_document
from tests.measurement.hand_written import Ran, profile_of, two_layers


def summed(*times: tuple[float, float], ranks: tuple[int, ...] = (0, 1)) -> Profile:
    """A rank that sums once in each layer, from one time to another."""
    return profile_of(
        [
            Ran("sum[0]", "comm", layer, [time], (), ranks)
            for layer, time in enumerate(times)
        ]
    )


def met(*profiles: Profile, shifts: tuple[float, ...] = ()) -> Meetings:
    shifts = shifts or (0.0,) * len(profiles)
    return find_meetings(dict(enumerate(profiles)), dict(enumerate(shifts)))


def test_waiting_for_the_last_rank_is_told_from_moving() -> None:
    found = met(
        summed((0, 10), (20, 30), (40, 50)), summed((3, 10), (24, 31), (39, 50))
    )
    (one,) = found.meetings
    assert (one.step, one.line, one.layers, one.ranks) == (
        "sum[0]",
        7,
        (0, 1, 2),
        (0, 1),
    )
    assert (one.first_waits, one.moves) == (3, 7)
    assert (one.last, one.times, one.count) == (1, 2, 3)
    assert found.impossible is None
    assert list(meeting_lines(found, "two.dfs")) == [
        "collective               first waits      moves  last to begin",
        "sum[0] of layers 0 to 2     0.003 ms   0.007 ms  rank 1, 2 of 3 times"
        "  two.dfs:7",
    ]


def test_times_are_compared_on_one_clock() -> None:
    (one,) = met(summed((0, 10)), summed((1003, 1010)), shifts=(0, -1000)).meetings
    assert (one.first_waits, one.moves) == (3, 7)


def test_clocks_that_contradict_a_collective_are_named() -> None:
    found = met(summed((0, 10), (20, 30)), summed((12, 14), (35, 36)))
    assert found.impossible is not None
    said = list(meeting_lines(found, "two.dfs"))[-1]
    assert said == (
        "by their clocks sum[0] layer 1 ended on rank 0 0.005 ms before it began on "
        "rank 1: times of these two ranks are at least that far apart"
    )


def test_ranks_of_two_groups_do_not_meet() -> None:
    pairs = [(0, 1), (0, 1), (2, 3), (2, 3)]
    found = met(*(summed((k, 20), ranks=pair) for k, pair in enumerate(pairs)))
    assert [(one.ranks, one.first_waits, one.last) for one in found.meetings] == [
        ((0, 1), 1, 1),
        ((2, 3), 1, 3),
    ]
    assert "ranks 2, 3" in list(meeting_lines(found, "two.dfs"))[-1]


def test_one_rank_meets_nobody() -> None:
    found = met(summed((0, 10)))
    assert not found.meetings
    assert not list(meeting_lines(found, "two.dfs"))


def test_how_clocks_were_brought_together_is_told() -> None:
    assert not list(clock_lines([RankClock("a")]))
    assert list(clock_lines([RankClock("a"), RankClock("a")])) == [
        "2 ranks of one machine, on its clock"
    ]
    clocks = [RankClock("a"), RankClock("b", 5_000_000, 12_000)]
    (said,) = clock_lines(clocks)
    assert said.startswith("2 ranks of 2 machines, on the clock of rank 0")
    assert said.endswith("is known within 0.012 ms")


def events(*shown: Shown) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = trace_document(shown)["traceEvents"]
    return listed


def test_ranks_lie_side_by_side_on_the_clock_of_the_first() -> None:
    """Their profilers count from other times, and one clock is 2 ms ahead."""
    base = 1_790_000_000_000_000_000
    first = profile_of(two_layers(), origin=base)
    other = profile_of(two_layers(), {0: (1000.0, 1.0)}, origin=base + 5_000_000)
    shown = [Shown("rank 0: two", first), Shown("rank 1: two", other, 2_000_000)]
    assert shifts_of(shown) == [0, 3000]
    found = events(*shown)
    names = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    assert names == {
        1: "rank 0: two on cuda:0 (Fake)",
        2: "rank 1: two on cuda:0 (Fake)",
    }
    begins = {
        e["pid"]: e["ts"]
        for e in reversed(found)
        if e.get("cat") == "step" and e["name"] == "attn[0] layer 0"
    }
    assert begins == {1: 0.0, 2: pytest.approx(4000.0)}


def test_waits_lie_between_the_ranges_of_their_stream() -> None:
    found = events(Shown("two", profile_of(two_layers())))
    waits = [e for e in found if e.get("cat") == "wait" and e["tid"] == 1]
    assert [(e["name"], e["ts"], e["dur"], e["args"]["before"]) for e in waits] == [
        ("waits for sum[0] layer 0", 10, 4, "mlp[0] layer 0"),
        ("waits for sum[1] layer 0", 24, 2, "attn[0] layer 1"),
        ("waits for sum[0] layer 1", 36, 4, "mlp[0] layer 1"),
        ("waits for sum[1] layer 1", 50, 2, "the end"),
    ]
    first = waits[0]["args"]
    assert first["part"] == "sum"
    assert (first["microbatch"], first["layer"], first["line"]) == (0, 0, 11)
    assert first["stream"] == "comm"
    ranges = [e for e in found if e.get("cat") == "step" and e["tid"] == 1]
    for wait in waits:
        for other in ranges:
            assert (
                other["ts"] + other["dur"] <= wait["ts"]
                or wait["ts"] + wait["dur"] <= other["ts"]
            )


def test_steps_of_several_ranks_say_whom_they_meet() -> None:
    found = events(Shown("two", profile_of(two_layers())))
    sums = [e for e in found if e.get("cat") == "step" and "sum" in e["name"]]
    assert sums
    assert all(e["args"]["ranks"] == [0, 1] for e in sums)
