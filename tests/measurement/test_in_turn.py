"""Runs of `dfsc bench` that compile side by side and are measured in turn."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from benchmarks.in_turn import _report, _turn, read_runs
from tests.project.commands import ROOT

SHIPPED = {"ranks/two_gpus.toml": 10, "one_gpu.toml": 8}


def test_runs_with_words_that_all_have() -> None:
    first, second = read_runs(
        """
        every = ["--rounds", 7]
        [one]
        bench = ["a.dfs"]
        [two]
        bench = ["b.dfs", "--size", "4"]
        ranks = 2
        environment = { NCCL_P2P_DISABLE = "1" }
        """
    )
    assert (first.name, first.words, first.ranks) == (
        "one",
        ("a.dfs", "--rounds", "7"),
        1,
    )
    assert second.words == ("b.dfs", "--size", "4", "--rounds", "7")
    assert (second.ranks, second.environment) == (2, {"NCCL_P2P_DISABLE": "1"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[one]\nranks = 2", "no list `bench`"),
        ("one = 3", "`one` is no run"),
        ('[one]\nbench = ["a.dfs"]\nrank = 2', "no `rank`"),
        ("[one", "TOML|Expected"),
    ],
)
def test_what_is_no_run(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_runs(text)


@pytest.mark.parametrize("file", SHIPPED)
def test_the_runs_that_ship_are_of_files_that_ship(file: str) -> None:
    runs = read_runs((ROOT / "benchmarks" / file).read_text(encoding="utf-8"))
    assert len(runs) == SHIPPED[file]
    for run in runs:
        assert (ROOT / run.words[0]).is_file()


def test_nobody_measures_before_all_are_ready_or_two_at_once(tmp_path: Path) -> None:
    log: list[str] = []
    entered = threading.Event()

    def measure(name: str) -> None:
        with _turn(tmp_path, name, 0):
            log.append(f"{name} begins")
            entered.wait(timeout=0.3)
            log.append(f"{name} ends")

    threads = [threading.Thread(target=measure, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    threads[0].join(timeout=0.3)
    assert log == []
    (tmp_path / "all").touch()
    for thread in threads:
        thread.join(timeout=30)
    names = [line.split()[0] for line in log]
    assert names in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


def test_other_ranks_follow_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    entered = threading.Event()

    def measure() -> None:
        with _turn(tmp_path, "a", 1):
            entered.set()

    thread = threading.Thread(target=measure)
    thread.start()
    (tmp_path / "a.0.turn").touch()  # the turn before this one
    assert not entered.wait(timeout=0.3)
    (tmp_path / "a.1.turn").touch()
    thread.join(timeout=30)
    assert entered.is_set()


def test_the_report_says_how_many_times_as_fast(tmp_path: Path) -> None:
    ratio = {"median": 0.8, "low": 0.5, "high": 1.0}
    document = {
        "entry": "decode",
        "sizes": {"batch": 8},
        "contenders": {"scheduled": {"steady_ratios": {"eager": ratio}}},
    }
    (tmp_path / "one.json").write_text(json.dumps(document))
    assert _report("one", tmp_path) == [
        "one, decode, batch 8",
        "  1.250 [1.000, 2.000] of eager",
    ]
