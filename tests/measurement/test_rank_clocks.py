"""Clocks of processes, of which one is made to be ahead."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
import torch.multiprocessing as processes

from dynaflow_dsl.measurement.rank_clocks import (
    RankClock,
    compare_clocks,
    this_machine,
)
from dynaflow_dsl.measurement.rounds import alone

AHEAD = 7_000_000_000


def told(word: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, word)
    return found


def run_rank(rank: int, folder: str, machines: tuple[str, ...]) -> None:
    store = dist.FileStore(f"{folder}/store", len(machines))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=len(machines))
    ahead = AHEAD * (machines[rank] != machines[0])
    clocks = compare_clocks(told, machines[rank], lambda: time.time_ns() + ahead)
    text = json.dumps([(one.machine, one.ahead, one.doubt) for one in clocks])
    Path(folder, f"{rank}.json").write_text(text, "utf-8")
    dist.destroy_process_group()


@pytest.mark.parametrize("machines", [("a", "a"), ("a", "b", "b")])
def test_a_clock_of_another_machine_is_measured(
    machines: tuple[str, ...], tmp_path: Path
) -> None:
    processes.spawn(run_rank, (str(tmp_path), machines), nprocs=len(machines))
    said = [json.loads(path.read_text("utf-8")) for path in tmp_path.glob("*.json")]
    assert len(said) == len(machines)
    assert all(one == said[0] for one in said)
    for machine, ahead, doubt in said[0]:
        if machine == machines[0]:
            assert (ahead, doubt) == (0, 0)
        else:
            # Really they have one clock.
            assert doubt > 0
            assert abs(ahead - AHEAD) <= doubt


def test_one_process_has_its_own_clock() -> None:
    assert compare_clocks(alone, "a") == [RankClock("a")]


def test_a_machine_has_one_name() -> None:
    assert this_machine() == this_machine() != ""
