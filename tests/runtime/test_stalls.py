"""Steps that hang on a device, with a clock and a device that the test holds."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dynaflow_dsl.runtime.ranks import Ranks
from dynaflow_dsl.runtime.stalls import StallWatch, before


class Device:
    """What was given to it ends when the test says so; `at` is where streams stand."""

    def __init__(self, said: str = "") -> None:
        self.now, self.done = 0.0, False
        self.told: list[str] = []
        self.at: list[int] = []
        self.ends = 0
        self.watch = StallWatch(
            self, lambda: self.now, self.told.append, lambda: said, self.count_end
        )
        # The test looks itself.
        self.watch._thread = threading.current_thread()
        self.watch.watch(timedelta(seconds=40))

    def begun(self, number: int) -> None:
        """A device that runs when it is told to, not when work is issued."""

    def standing(self) -> list[int]:
        return self.at

    def mark(self) -> Callable[[], bool]:
        return lambda: self.done

    def count_end(self) -> None:
        self.ends += 1

    def after(self, seconds: float) -> list[str]:
        """What has been told when so much time is over."""
        self.now += seconds
        self.watch.look()
        return self.told


def test_a_step_that_hangs_on_the_device_is_told_once_and_ended() -> None:
    device = Device(said="")
    device.watch.begin("halves, entry decode")
    device.watch.started(1, lambda: "reduce[1], layer 2 (halves.dfs:14:13)")
    device.watch.end()
    assert device.after(35) == []
    device.watch._said = lambda: " (rank 1: ValueError: no such row)"
    (said,) = device.after(2)
    assert said.startswith(
        "DFS816: the step halves, entry decode, has not ended for 37 s"
    )
    assert "the last collective that was started is that of reduce[1], layer 2" in said
    assert "in another step (rank 1: ValueError: no such row)" in said
    assert device.after(2) == [said]
    assert device.ends == 0
    _, last = device.after(2)
    assert last.startswith("DFS816: this process ends, since the step halves, entry")
    assert "reduce[1], layer 2 (halves.dfs:14:13)" in last
    assert device.ends == 1


def test_the_device_says_where_it_stands_whatever_the_host_started_last() -> None:
    device = Device()
    device.watch.begin("halves, entry prefill")
    device.watch.started(0, lambda: "reduce[0], layer 0 (halves.dfs:14:13)")
    device.watch.end()
    for _ in range(2):  # by a replay, which starts nothing, the second time
        device.watch.begin("halves, entry decode")
        for layer in range(3):
            device.watch.started(
                ("reduce", layer), lambda n=layer: f"reduce[0], layer {n}"
            )
        device.watch.end()
    device.done = True
    device.after(1)
    device.done = False
    device.watch.begin("halves, entry decode")
    device.watch.end()
    # One stream in the second layer, one that was left at another step's collective.
    device.at = [3, 1, 0]
    (said,) = device.after(37)
    assert "; the device has last begun reduce[0], layer 1. Another rank" in said


def test_a_rank_that_has_failed_is_named_long_before_the_timeout() -> None:
    device = Device(said=" (rank 1: ValueError: no such row)")
    device.watch.begin("halves, entry decode")
    device.watch.started(1, lambda: "reduce[1], layer 2 (halves.dfs:14:13)")
    device.watch.end()
    assert device.after(4) == []
    (said,) = device.after(2)
    assert said == (
        "DFS816: another rank has failed (rank 1: ValueError: no such row), and the "
        "step halves, entry decode, has not ended for 6 s; the last collective that "
        "was started is that of reduce[1], layer 2 (halves.dfs:14:13). Unless it ends "
        "in 10 s, this process does."
    )
    assert device.after(9) == [said]
    assert device.ends == 0
    _, last = device.after(1)
    assert last.startswith("DFS816: this process ends, since the step halves, entry")
    assert last.endswith(", and another rank has failed.")
    assert device.ends == 1


def test_a_step_that_ends_beside_a_failed_rank_ends_nobody() -> None:
    device = Device(said=" (rank 1: ValueError: no such row)")
    device.watch.begin("halves, entry decode")
    device.watch.end()
    assert len(device.after(6)) == 1
    device.done = True
    device.after(11)
    assert device.ends == 0


def test_others_are_not_asked_anew_while_they_keep_silent() -> None:
    device = Device()
    never, asked = threading.Event(), []

    def said() -> str:
        asked.append(True)
        return str(never.wait(60))

    device.watch._said = said
    device.watch.begin("halves, entry decode")
    device.watch.end()
    for _ in range(5):
        device.after(6)
    never.set()
    assert device.told == []
    assert len(asked) == 1


def test_a_process_that_slept_with_all_others_is_not_ended_when_it_wakes() -> None:
    device = Device()
    device.watch.begin("halves, entry decode")
    device.watch.end()
    assert len(device.after(4000)) == 1
    device.done = True
    device.after(1)
    assert device.ends == 0


def test_what_others_say_is_not_waited_for() -> None:
    device = Device()
    never = threading.Event()
    device.watch._said = lambda: str(never.wait(60))
    device.watch.begin("halves, entry decode")
    (said,) = device.after(37)
    assert "in another step. When the timeout" in said
    never.set()


def test_a_host_that_waits_for_a_full_queue_is_told_of() -> None:
    """Nothing that the watch needs is held while the device takes no more work."""
    device = Device()
    full, entered = threading.Event(), threading.Event()

    def wait() -> Callable[[], bool]:
        entered.set()
        full.wait(60)
        return lambda: False

    device.mark = wait  # type: ignore[method-assign]
    device.watch.begin("halves, entry decode")
    host = threading.Thread(target=device.watch.end, daemon=True)
    host.start()
    assert entered.wait(60)
    assert len(device.after(37)) == 1
    device.after(10)
    assert device.ends == 1
    full.set()


def test_a_step_in_which_the_host_hangs_is_told_as_well() -> None:
    device = Device()
    device.watch.begin("halves, entry decode")
    (said,) = device.after(37)
    assert "last" not in said


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
        device.after(6.5)
    (said,) = device.told
    assert "halves, step 0, has not ended" in said


def test_a_step_has_its_time_when_those_before_it_have_ended() -> None:
    device = Device()
    first, second = [False], [False]
    for ended in (first, second):
        device.mark = lambda ended=ended: lambda: ended[0]  # type: ignore[method-assign]
        device.watch.begin("halves, entry decode")
        device.watch.end()
    device.after(30)
    first[0] = True
    assert device.after(7) == []
    assert device.after(35) == []
    assert len(device.after(2)) == 1


def test_inputs_that_are_refused_do_not_end_the_step_before() -> None:
    device = Device()
    device.watch.begin("halves, entry decode")
    device.watch.end()
    device.watch.abandon()
    assert len(device.after(37)) == 1


class Hanging:
    """A device on which no step ends before the test says so."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def begun(self, number: int) -> None:
        """It comes to nothing."""

    def standing(self) -> list[int]:
        return []

    def mark(self) -> Callable[[], bool]:
        return self.done.is_set


def test_nobody_watches_for_a_module_that_is_gone() -> None:
    watch = StallWatch(Hanging())
    watch.watch(timedelta(seconds=0.2))
    thread = watch._thread
    assert thread is not None
    assert thread.is_alive()
    del watch
    thread.join(60)
    assert not thread.is_alive()


def test_a_step_is_watched_when_its_module_is_gone() -> None:
    device, ended = Hanging(), threading.Event()
    watch = StallWatch(device, tell=lambda _: None, end=ended.set)
    watch.begin("halves, entry decode")
    watch.end()
    watch.watch(timedelta(seconds=0.2))
    thread = watch._thread
    assert thread is not None
    del watch
    assert ended.wait(60)
    device.done.set()
    thread.join(60)
    assert not thread.is_alive()


def test_it_is_told_before_the_end_of_the_process() -> None:
    assert before(600) == 590
    assert before(20) == 18


# A device that hangs, in a process of its own, which the watch ends.
HANGING = """
import threading
from datetime import timedelta
from dynaflow_dsl.runtime.stalls import StallWatch

class Device:
    def begun(self, number): pass
    def standing(self): return [1]
    def mark(self): return lambda: False

watch = StallWatch(Device())
watch.watch(timedelta(seconds=2))
watch.begin("halves, entry decode")
watch.started(1, lambda: "reduce[1], layer 2 (halves.dfs:14:13)")
watch.end()
print("issued", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("stdout", ["None", "open('/dev/full', 'w')"])
def test_the_process_ends_whatever_became_of_its_output(stdout: str) -> None:
    text = f"import sys\nsys.stdout = {stdout}\nprint('lost')\n{HANGING}"
    text = text.replace(", flush=True", "")
    ended = subprocess.run([sys.executable, "-c", text], timeout=120)
    assert ended.returncode == 1


def test_the_process_ends_though_its_main_thread_waits_for_good() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    assert ended.stdout == "issued\n"
    first, last = ended.stderr.splitlines()
    assert "the device has last begun reduce[1], layer 2 (halves.dfs:14:13)" in first
    assert last.startswith("DFS816: this process ends, since the step halves, entry")


def test_a_rank_that_goes_on_takes_back_what_it_has_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or others would take it for a failure of the step that they are in later."""

    class Told:
        withdrawn = 0

        def withdraw(self) -> None:
            self.withdrawn += 1

    told: Any = Told()
    group: Any = object()
    ranks = Ranks(("tp",), {}, always=False)
    ranks._met["tp"], ranks._steps["tp"] = group, told
    monkeypatch.setattr("dynaflow_dsl.runtime.ranks.is_known_to_torch", lambda _: True)
    monkeypatch.setattr("dynaflow_dsl.runtime.ranks.players", lambda: {"tp": group})
    compared: list[str] = []
    monkeypatch.setattr(Ranks, "_compare", lambda self, step, _: compared.append(step))
    ranks.before_step("halves, entry decode", {})
    assert (compared, told.withdrawn) == (["halves, entry decode"], 0)
    ranks.before_step("halves, entry decode", {})
    assert (len(compared), told.withdrawn) == (1, 1)
    with ranks.replayed("halves, entry decode"):
        pass
    assert told.withdrawn == 2
