"""Steps that hang on a device, with a clock and a device that the test holds."""

from __future__ import annotations

import threading
from datetime import timedelta

from dynaflow_dsl.runtime.stalls import StallWatch, before


class Device:
    """What was given to it ends when the test says so."""

    def __init__(self) -> None:
        self.now, self.done = 0.0, False
        self.told: list[str] = []
        self.watch = StallWatch(
            lambda: lambda: self.done, lambda: self.now, self.told.append
        )
        # The test looks itself.
        self.watch._thread = threading.current_thread()
        self.watch.watch(timedelta(seconds=30))

    def after(self, seconds: float) -> list[str]:
        """What has been told when so much time is over."""
        self.now += seconds
        self.watch.look()
        return self.told


def test_a_step_that_hangs_on_the_device_is_told_once() -> None:
    device = Device()
    device.watch.begin("halves, entry decode")
    device.watch.started(lambda: "reduce[1], layer 2 (halves.dfs:14:13)")
    device.watch.end()
    assert device.after(29) == []
    (said,) = device.after(2)
    assert said.startswith(
        "DFS816: the step halves, entry decode, has not ended for 30 s"
    )
    assert "the last collective that was started is that of reduce[1], layer 2" in said
    assert device.after(60) == [said]


def test_a_step_in_which_the_host_hangs_is_told_as_well() -> None:
    device = Device()
    device.watch.begin("halves, entry decode")
    (said,) = device.after(31)
    assert "last collective" not in said


def test_nothing_is_told_of_steps_that_end() -> None:
    device = Device()
    device.after(100)
    for _ in range(3):
        device.watch.begin("halves, entry decode")
        device.watch.end()
        device.done = True
        device.after(100)
        device.done = False
    assert device.told == []


def test_a_step_that_failed_is_not_told_again() -> None:
    device = Device()
    device.watch.begin("halves, entry decode")
    device.watch.abandon()
    assert device.after(100) == []


def test_a_host_that_runs_ahead_does_not_hide_the_step_that_hangs() -> None:
    device = Device()
    for number in range(6):
        device.watch.begin(f"halves, step {number}")
        device.watch.end()
        device.after(6)
    (said,) = device.told
    assert "halves, step 0, has not ended" in said


def test_a_step_has_its_time_when_those_before_it_have_ended() -> None:
    device = Device()
    first, second = [False], [False]
    for ended in (first, second):
        device.watch._mark = lambda ended=ended: lambda: ended[0]
        device.watch.begin("halves, entry decode")
        device.watch.end()
    device.after(25)
    first[0] = True
    assert device.after(6) == []
    assert device.after(29) == []
    assert len(device.after(2)) == 1


def test_inputs_that_are_refused_do_not_end_the_step_before() -> None:
    device = Device()
    device.watch.begin("halves, entry decode")
    device.watch.end()
    device.watch.abandon()
    assert len(device.after(31)) == 1


def test_the_limit_lies_before_the_end_of_the_process() -> None:
    assert before(timedelta(seconds=600)) == timedelta(seconds=590)
    assert before(timedelta(seconds=20)) == timedelta(seconds=18)
