"""Words that ranks leave when they fail, in a store of this process."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

import pytest
import torch.distributed as dist

from dynaflow_dsl.cli import failures as room
from dynaflow_dsl.cli.failures import Failures, LeftAloneError

# Longer than anything here takes: nobody waits for it where all is well.
LONG = 20.0


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "INTERVAL", 0.01)
    monkeypatch.setattr(room, "PATIENCE", 0.05)
    monkeypatch.setattr(room, "LINGERING", LONG)


class Launch:
    """Ranks that share a store; `ended` is what those were told that had not failed."""

    def __init__(self, count: int) -> None:
        self.store = dist.HashStore()
        self.ended: SimpleQueue[tuple[int, str]] = SimpleQueue()
        self.ranks = [self.rank(number, count) for number in range(count)]

    def rank(self, number: int, count: int) -> Failures:
        return Failures(
            self.store, number, count, lambda word: self.ended.put((number, word))
        )


def test_all_others_end_with_what_the_failing_rank_says() -> None:
    launch = Launch(3)
    for rank in launch.ranks:
        rank.watch()
    began = time.monotonic()
    launch.ranks[1].leave("DFS110: no weights")
    # Until they have heard it, and no longer.
    assert time.monotonic() - began < LONG / 2
    told = {launch.ended.get(timeout=LONG) for _ in range(2)}
    said = "rank 1 has failed: DFS110: no weights"
    assert told == {(0, said), (2, said)}
    with pytest.raises(Empty):
        launch.ended.get(block=False)


def test_ranks_that_fail_alike_say_it_themselves() -> None:
    launch = Launch(2)
    for rank in launch.ranks:
        rank.watch()
    leaving = [
        threading.Thread(target=rank.leave, args=("DFS102",)) for rank in launch.ranks
    ]
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join(LONG)
        assert not thread.is_alive()
    assert launch.ended.empty()


def test_a_rank_that_has_ended_is_not_ended_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "LINGERING", 0.2)
    launch = Launch(2)
    launch.ranks[0].watch()
    launch.ranks[0].stop()
    # It does not wait for ever for those that do not listen.
    launch.ranks[1].leave("DFS506: trace.json cannot be written")
    assert launch.ended.empty()


def test_words_of_an_earlier_attempt_are_not_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "LINGERING", 0.0)
    launch = Launch(2)
    launch.ranks[1].leave("DFS816")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    again = launch.rank(0, 2)
    again.watch()
    with pytest.raises(Empty):
        launch.ended.get(timeout=0.3)
    again.stop()


def test_a_store_that_is_gone_is_no_failure() -> None:
    class Gone:
        def check(self, keys: object) -> bool:
            raise RuntimeError("Connection reset by peer")

        def set(self, key: str, value: str) -> None:
            raise RuntimeError("Connection reset by peer")

    told: list[str] = []
    rank = Failures(Gone(), 0, 2, told.append)
    rank.watch()
    rank.leave("DFS816")
    assert not told


def test_ranks_that_meet_know_who_has_failed() -> None:
    launch = Launch(3)
    with ThreadPoolExecutor(3) as threads:
        for reasons in ([None, "eager: no", None], [None] * 3, ["", "one", None]):
            met = [
                threads.submit(rank.meet, reason, LONG)
                for rank, reason in zip(launch.ranks, reasons, strict=True)
            ]
            assert [one.result() for one in met] == [reasons] * 3


def test_one_that_fails_alone_ends_those_that_wait_for_it_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "RESPITE", 0.1)
    launch = Launch(2)
    launch.ranks[0].watch()
    with pytest.raises(LeftAloneError, match=r"^eager: no$") as caught:
        launch.ranks[1].meet("eager: no", LONG)
    launch.ranks[1].leave(str(caught.value))
    assert launch.ended.get(timeout=LONG) == (0, "rank 1 has failed: eager: no")


def test_one_that_is_well_waits_as_long_as_ranks_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "RESPITE", 0.0)
    with pytest.raises(LeftAloneError, match=r"did not come for 0\.1 s"):
        Launch(2).ranks[1].meet(None, 0.1)
