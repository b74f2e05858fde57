"""Ranks in processes of their own, over gloo: results, differences, and failures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from dynaflow_dsl.runtime import RankError
from dynaflow_dsl.runtime.agreement import Steps
from dynaflow_dsl.runtime.ranks import Ranks
from tests.end_to_end.building import build
from tests.runtime import small_ranks

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module for two and four ranks, and another one of the same name's parts."""
    folder = tmp_path_factory.mktemp("modules")
    for ways in (2, 4):
        (folder / str(ways)).mkdir()
        spec = small_ranks.target(ways)
        build(spec, small_ranks.HALVES, folder / str(ways))
        other = small_ranks.HALVES.replace("schedule halves", "schedule other")
        build(spec, other.replace("by 1", "by 0"), folder / str(ways))
    return folder


def run(folder: Path, world: int, job: str) -> list[list[dict[str, Any]]]:
    """What each rank said."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.runtime.rank_worker"),
                *(str(rank), str(world), str(folder / str(world)), job),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        for rank in range(world)
    ]
    try:
        ended = [each.communicate(timeout=120) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    said = [[json.loads(line) for line in out.splitlines()] for out, _ in ended]
    # Seen where a test fails.
    for _, error in ended:
        print(error)
    return said


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_compute_what_one_process_does(folder: Path, world: int) -> None:
    """Close to the whole model, and bit for bit what the ranks do in turn."""
    for said in run(folder, world, "results"):
        assert [one["batch"] for one in said] == [1, 2, 5, 5, 8]
        assert all(one["close"] and one["equal"] for one in said), said


def test_what_differs_is_refused_on_every_rank_before_it_runs(folder: Path) -> None:
    first, second = run(folder, 2, "differences")
    for said in (first, second):
        loaded, sizes, unsplit, empty, after = said
        assert loaded["error"].startswith(
            "RankError DFS815: ranks of the group 'small'"
        )
        assert "on rank 1, and" in loaded["error"]
        assert "the schedule is" in loaded["error"]
        assert sizes["error"].startswith("RankError DFS815")
        assert (
            "rank 0 for halves, entry forward with batch = 4, and rank 1 for halves, "
            "entry forward with batch = 5" in sizes["error"]
        )
        assert (
            "rank 1 for halves, entry forward, unsplit, with batch = 1"
            in unsplit["error"]
        )
        assert "DFS8" in empty["error"]
        assert after == {"close": True}
    assert second[3]["error"].startswith("InputError DFS802")
    assert first[3]["error"].startswith("RankError DFS815: rank 1 of the group 'small'")
    assert "(rank 1: " in first[3]["error"]


@pytest.mark.parametrize("job", ["numbers", "named"])
def test_graphs_of_ranks_may_differ_in_numbers_alone(folder: Path, job: str) -> None:
    for rank in range(2):
        own = folder / "2" / f"own_{rank}"
        (own / "other").mkdir(parents=True, exist_ok=True)
        spec = small_ranks.own_number(2, rank)
        build(spec, small_ranks.HALVES, own)
        build(spec, small_ranks.HALVES.replace("by 1", "by 0"), own / "other")
    for right, *wrong in run(folder, 2, job):
        assert right == {"error": None}
        if job == "named":
            assert wrong.pop() == {"error": None}
        for said in wrong:
            assert said["error"].startswith("RankError DFS815: ranks of the group")
            assert "differently: the schedule is " in said["error"]
            for name in ("graph", "module's text", "operations", "collectives"):
                assert f"the {name} is" not in said["error"]


def test_groups_that_are_destroyed_are_bound_anew(folder: Path) -> None:
    for step, refused, loaded, after in run(folder, 2, "destroyed"):
        assert step["error"].startswith(
            "RankError DFS817: the group that played 'small' when the ranks met has "
            "been destroyed: call bind_group('small', group)"
        )
        # What is wrong with the inputs comes first, and nobody is told of it.
        assert refused["error"].startswith("InputError DFS802")
        assert loaded["error"].startswith("RankError DFS817")
        assert "bind_group('small', group) with one that it has made" in loaded["error"]
        assert after == {"close": True}


def test_no_graph_is_replayed_whose_communicators_are_destroyed() -> None:
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    ranks = Ranks(("a role",), {}, always=False)
    group: Any = dist.group.WORLD
    ranks._met["a role"] = group
    ranks._steps["a role"] = Steps("a role", group, group)
    try:
        with ranks.replayed("halves, entry decode"):
            pass
    finally:
        dist.destroy_process_group()
    with (
        pytest.raises(RankError, match=r"DFS817.*captured.*captured anew"),
        ranks.replayed("halves, entry decode"),
    ):
        raise AssertionError("it is replayed")


def test_a_rank_that_does_not_load_in_time_is_named(folder: Path) -> None:
    (said, *after), late = run(folder, 2, "absent")
    assert after == late == [{"close": True}]
    assert said["in_time"]
    assert (
        "rank 1 of the group 'small' did not load a module within 8 s" in said["error"]
    )


@pytest.mark.parametrize(("world", "job"), [(2, "dies"), (2, "stalls"), (4, "dies")])
def test_a_rank_that_is_gone_or_late(folder: Path, world: int, job: str) -> None:
    """An error on every rank that is left, with the step and its line, in time."""
    *left, _ = run(folder, world, job)
    for rank, (said,) in enumerate(left):
        assert said["in_time"]
        assert said["error"].startswith(
            "RankError DFS816: the collective of reduce["
        ), said
        assert re.search(r"\], layer \d \(test.dfs:14:13\)", said["error"])
        assert f"on rank {rank} of the group 'small:comm'" in said["error"]


@pytest.mark.parametrize(
    ("job", "raised", "told"),
    [
        ("raises", "ValueError no such row", "(rank 1: ValueError: no such row)"),
        ("interrupted", "KeyboardInterrupt ", "(rank 1: KeyboardInterrupt)"),
    ],
)
def test_a_rank_that_raises_says_why_to_the_others(
    folder: Path, job: str, raised: str, told: str
) -> None:
    (first,), (second,) = run(folder, 2, job)
    assert second["error"] == raised
    assert second["notes"] == ["in compute[0], layer 1 · test.dfs:13:13"]
    assert first["error"].startswith("RankError DFS816: the collective of reduce[")
    assert told in first["error"]
