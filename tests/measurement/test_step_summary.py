"""What main waits for, in profiles whose times are written down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dynaflow_dsl.measurement.gaps import find_gaps
from dynaflow_dsl.measurement.profile import HOST, Profile
from dynaflow_dsl.measurement.step_summary import StepSummary, StreamUse, summarise
from dynaflow_dsl.measurement.summary_text import summary_lines
from dynaflow_dsl.measurement.timeline import Timeline, device_timeline
from dynaflow_dsl.runtime.watch import Step
from tests.measurement.hand_written import Ran, profile_of, two_layers
from tests.measurement.test_timeline import kernel, mark


def summary(profile: Profile) -> StepSummary:
    found = summarise(profile)
    assert found is not None
    return found


def text(profile: Profile) -> str:
    return "\n".join(summary_lines("rank 0", "two.dfs", summary(profile)))


def test_every_gap_of_main_has_its_reason() -> None:
    found = [
        (
            gap.begin,
            gap.end,
            str(gap.awaited.step) if gap.awaited else None,
            str(gap.step.step) if gap.step else None,
            gap.inside,
        )
        for gap in find_gaps(profile_of(two_layers()), "main")
    ]
    assert found == [
        (10, 14, "sum[0] layer 0", "mlp[0] layer 0", False),
        (18, 19, None, "mlp[0] layer 0", True),
        (24, 26, "sum[1] layer 0", "attn[0] layer 1", False),
        (36, 40, "sum[0] layer 1", "mlp[0] layer 1", False),
        (44, 45, None, "mlp[0] layer 1", True),
        (50, 52, "sum[1] layer 1", None, False),
    ]


def test_waits_of_layers_are_one_and_add_up_to_the_idle_time() -> None:
    found = summary(profile_of(two_layers()))
    assert found.step == 52
    assert found.streams == (StreamUse("main", 38, 14), StreamUse("comm", 20, 32))
    assert [
        (one.awaited, one.layers, one.before, one.later, one.count, one.each, one.total)
        for one in found.waits
    ] == [
        ("sum[0]", (0, 1), "mlp[0]", 0, 2, 4, 8),
        ("sum[1]", (0,), "attn[0]", 1, 1, 2, 2),
        ("sum[1]", (1,), "", None, 1, 2, 2),
    ]
    assert [(one.takes, one.beside) for one in found.waits] == [(4, 0), (6, 4), (6, 4)]
    assert (found.inside.total, found.inside.count) == (2, 2)
    assert (found.between.total, found.between.count) == (0, 0)
    idle = sum(one.total for one in found.waits)
    assert idle + found.inside.total + found.between.total == found.streams[0].idle


def test_the_text_names_part_microbatch_layers_and_lines() -> None:
    assert text(profile_of(two_layers())) == (
        """\
rank 0: 0.052 ms a step
  main  busy 0.038 ms, idle 0.014 ms (26.9%)
  comm  busy 0.020 ms, idle 0.032 ms (61.5%)
  main waits 0.008 ms for sum[0] of layers 0 to 1 on comm (two.dfs:11)
    2 times 0.004 ms before mlp[0] (line 12)
    it takes 0.004 ms, 0.000 ms beside work of main
  main waits 0.002 ms for sum[1] of layer 0 on comm (two.dfs:13)
    before attn[0] of the next layer (line 10)
    it takes 0.006 ms, 0.004 ms beside work of main
  main waits 0.002 ms for sum[1] of layer 1 on comm (two.dfs:13)
    at the end of the step
    it takes 0.006 ms, 0.004 ms beside work of main
  main pauses 0.002 ms between kernels of a step, 2 times, and waits for no step then: \
launches, or the host"""
    )


def test_the_run_of_median_length_is_told() -> None:
    runs = {0: (0.0, 9.0), 1: (1000.0, 1.0), 2: (2000.0, 2.0)}
    found = summary(profile_of(two_layers(), runs))
    assert (found.step, found.least, found.most, found.runs) == (104, 52, 468, 3)
    assert found.waits[0].total == 16
    assert "a step, the median of 3 runs (0.052 to 0.468)" in text(
        profile_of(two_layers(), runs)
    )


def test_of_several_awaited_steps_the_last_one_counts() -> None:
    """And what comes behind its end is a pause: nobody is waited for then."""
    steps = [
        Ran("a", "main", 0, [(0, 5)]),
        Ran("b", "comm", 0, [(1, 6)], (0,)),
        Ran("c", "comm", 0, [(7, 9)], (0,)),
        Ran("d", "main", 0, [(12, 15)], (1, 2)),
    ]
    (wait,) = summary(profile_of(steps)).waits
    assert (wait.awaited, wait.total, wait.after, wait.behind) == ("c", 4, 2, "b")
    assert summary(profile_of(steps)).between.total == 3
    assert "begins 0.002 ms after main has begun to wait, behind b" in text(
        profile_of(steps)
    )


def test_a_step_that_had_ended_is_not_waited_for() -> None:
    steps = [
        Ran("b", "comm", 0, [(1, 4)]),
        Ran("a", "main", 0, [(0, 5)]),
        Ran("d", "main", 0, [(6, 9)], (0,)),
    ]
    found = summary(profile_of(steps))
    assert not found.waits
    assert found.between.total == 1


def test_a_step_without_kernels_hands_its_wait_on() -> None:
    """As a block that only cuts tensors does: the next one with work is kept."""
    profile = profile_of(
        [
            Ran("a", "main", 0, [(0, 5)]),
            Ran("b", "comm", 0, [(1, 9)]),
            Ran("x = y[0]", "main", None, [(9, 9)], (1,)),
            Ran("d", "main", 0, [(10, 15)]),
        ]
    )
    without_work = Timeline(
        tuple(
            one if one.number != 2 else type(one)(one.step, 0, 9, 9, (), 2)
            for one in profile.timeline.steps
        ),
        (),
    )
    found = summary(
        Profile("cuda", ("main", "comm"), without_work, True, "", profile.awaited)
    )
    ((wait),) = found.waits
    assert (wait.awaited, wait.before, wait.total) == ("b", "d", 4)


def test_the_text_of_a_module_is_quoted() -> None:
    steps = [
        Ran("a", "main", 0, [(0, 5)]),
        Ran("b", "comm", 0, [(1, 9)]),
        Ran("out = torch.cat([a, b])", "main", None, [(9, 12)], (1,), line=0),
    ]
    assert "    before `out = torch.cat([a, b])`\n" in text(profile_of(steps))


def test_waits_that_are_small_or_many_are_counted_together() -> None:
    steps = [Ran("start", "main", None, [(0, 1000)])]
    now = 1000.0
    for number in range(12):
        steps.append(Ran(f"c{number}", "comm", None, [(now - 5, now + 10 + number)]))
        now += 10 + number
        steps.append(
            Ran(f"m{number}", "main", None, [(now, now + 5)], (len(steps) - 1,))
        )
        now += 5
    shown = text(profile_of(steps))
    assert shown.count(" ms for c") == 8
    assert "main waits 0.046 ms in 4 more kinds of waits" in shown


def test_steps_on_the_host_are_busy_between_their_operators() -> None:
    steps = [Ran("a", "main", 0, [(0, 2), (4, 5)]), Ran("b", "main", 0, [(5, 6)])]
    assert summary(profile_of(steps)).streams[0].idle == 2
    assert summary(profile_of(steps, device=HOST)).streams[0].idle == 0


def test_a_collective_whose_kernels_nobody_saw_is_busy() -> None:
    seen = profile_of(two_layers())
    unseen = Timeline(
        tuple(
            replace(one, work=()) if one.number in seen.meets else one
            for one in seen.timeline.steps
        ),
        (),
    )
    assert summary(replace(seen, timeline=unseen)) == summary(seen)


def test_nothing_that_ran_is_no_summary() -> None:
    assert summarise(Profile("CPU", ("main",), Timeline((), ()), False)) is None


def test_a_trace_of_a_replayed_graph_is_told_of() -> None:
    """Events as a profiler gives them, marks among them, of streams that it numbers."""
    events = [
        mark(0, 7, 0),
        kernel("gemm", 7, 1, 5),
        mark(1, 7, 6),
        mark(2, 20, 6.5),
        kernel("ncclDevKernel_AllReduce", 20, 7, 15),
        mark(3, 20, 15.5),
        mark(4, 7, 16.5),
        kernel("gemm", 7, 17, 20),
        mark(5, 7, 21),
    ]
    steps = (
        Step("attn[1]", "attn", "main", 3, 3, 10),
        Step("attn_reduce[1]", "attn_reduce", "comm", 3, 3, 11),
        Step("mlp[1]", "mlp", "main", 3, 3, 12),
    )
    timeline = device_timeline(events, steps)
    profile = Profile("cuda:0", ("main", "comm"), timeline, True, "", ((), (0,), (1,)))
    (wait,) = summary(profile).waits
    assert (wait.awaited, wait.before, wait.layers) == (
        "attn_reduce[1]",
        "mlp[1]",
        (3,),
    )
    assert wait.total == pytest.approx(10.5)
