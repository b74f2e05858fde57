"""`dfsc profile` on two processes that torchrun starts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_ranks_document import folder, torchrun

__all__ = ["folder"]

PROFILE = ("-m", "dynaflow_dsl", "profile", "two_batch.dfs", "--text-only")


def named(events: Iterable[Any], kind: str) -> dict[tuple[int, int], str]:
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == kind
    }


def reaches(event: Any) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


@pytest.mark.slow
def test_one_trace_holds_all_ranks(folder: Path) -> None:
    command = (*PROFILE, "-o", "trace.json", "--output-format", "json")
    ran = torchrun(folder, *command)
    assert ran.returncode == 0, ran.stderr
    (result,) = json.loads(ran.stdout)["results"]
    assert result["ranks"] == 2
    assert [one["ahead"] for one in result["clocks"]] == [0, 0]
    assert [one["rank"] for one in result["profiles"]] == [0, 1, 0, 1]

    events = json.loads((folder / "trace.json").read_text("utf-8"))["traceEvents"]
    processes = named(events, "process_name")
    assert [name.partition(",")[0] for name in processes.values()] == [
        "rank 0: two_batch",
        "rank 1: two_batch",
        "rank 0: two_batch",
        "rank 1: two_batch",
    ]
    tracks = named(events, "thread_name")
    steps = [event for event in events if event.get("cat") == "step"]
    sums = [event for event in steps if event["args"].get("part") == "mlp_reduce"]
    assert {tracks[event["pid"], event["tid"]] for event in sums} == {"comm"}
    assert all(event["args"]["ranks"] == [0, 1] for event in sums)
    # No rank ends a sum that another one has not begun, on the axis of the trace.
    by_rank: dict[tuple[Any, ...], dict[int, tuple[float, float]]] = {}
    for event in sums:
        said = event["args"]
        key = (event["pid"] > 2, said["run"], said["microbatch"], said["layer"])
        by_rank.setdefault(key, {})[event["pid"]] = reaches(event)
    assert len(by_rank) == 2 * 3 * 2 * 2
    for ranks in by_rank.values():
        begins, ends = zip(*ranks.values(), strict=True)
        assert len(begins) == 2
        assert max(begins) < min(ends)
    # What the thread of a stream runs lies within the step it is for.
    inside = [
        event
        for event in events
        if event.get("cat") == "work" and event["args"].get("part") == "mlp_reduce"
    ]
    assert any("all_reduce" in event["name"] for event in inside)
    assert {tracks[event["pid"], event["tid"]] for event in inside} == {"comm"}


@pytest.mark.slow
def test_the_summary_tells_what_each_rank_waits_for(folder: Path) -> None:
    ran = torchrun(folder, *PROFILE, "-o", "told.json", "--runs", "1")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[1] == "2 ranks of one machine, on its clock"
    # One rank tells of both, for both entries.
    for rank in (0, 1):
        head = f"  rank {rank} on CPU, issued anew: "
        assert sum(line.startswith(head) for line in lines) == 2
    waits = [line for line in lines if line.startswith("    main waits ")]
    assert any("_reduce[" in line for line in waits)
    assert all(" on comm (two_batch.dfs:" in line for line in waits if "_red" in line)
    assert ran.stdout.count("  mlp_reduce[1] of layers 0 to 1 ") == 2


@pytest.mark.slow
def test_a_rank_that_fails_is_named_on_the_others(folder: Path) -> None:
    (folder / "broken.py").write_text(
        "import os\n"
        "from dynaflow_dsl.models import tensor_parallel\n"
        "def target(**options):\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise ValueError('no weights here')\n"
        "    return tensor_parallel.pretrained(**options)\n",
        "utf-8",
    )
    (folder / "kept.json").write_text("old", "utf-8")
    words = ("--model", "broken.py:target", "-M", "path=checkpoint", "-M", "ways=2")
    ran = torchrun(folder, *PROFILE, *words, "-o", "kept.json")
    assert ran.returncode != 0
    assert "error[DFS110]: " in ran.stderr
    assert "no weights here" in ran.stderr
    assert "Error: rank 1 has failed: DFS110: " in ran.stderr
    assert (folder / "kept.json").read_text("utf-8") == "old"
    assert not ran.stdout
