"""`dfsc bench` on real ranks, over gloo: what is measured, not how fast it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


# `dfsc`, with a contender that cannot run on rank 1: the others wait in its step.
FAILING = """
import os, sys
from dynaflow_dsl.measurement import measure
from dynaflow_dsl.cli.main import run

make = measure.make

def made(case, name):
    if name == "sequential" and os.environ["RANK"] == "1":
        raise ValueError("not here")
    return make(case, name)

measure.make = made
sys.exit(run(sys.argv[1:]))
"""


def bench(
    folder: Path, program: list[str], *options: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += [*program, "bench", *options]
    command += [str(ROOT / "schedules" / "llama" / "two_batch.dfs"), "--size", "16"]
    command += ["-M", "ways=2", "-M", "layers=1", "--seconds", "0.001"]
    command += ["--only", "eager", "--only", "sequential", "--only", "scheduled"]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.slow
def test_ranks_measure_together_and_one_writes(tmp_path: Path) -> None:
    ran = bench(tmp_path, ["-m", "dynaflow_dsl"], "--output-format", "json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (result,) = json.loads(ran.stdout)["results"]
    assert result["ranks"] == 2
    assert result["sizes"] == {"batch": 16}
    for row in result["contenders"].values():
        assert len(row["wall"]) == len(row["steady"]) == 5
        assert row["apart"] < 1e-4


@pytest.mark.slow
def test_a_contender_that_fails_on_one_rank_ends_the_others(tmp_path: Path) -> None:
    program = tmp_path / "failing.py"
    program.write_text(FAILING)
    began = time.monotonic()
    ran = bench(tmp_path, [str(program)], "--rank-timeout", "300")
    assert time.monotonic() - began < 200
    assert ran.returncode != 0
    assert "Error: rank 1 has failed: sequential: ValueError: not here" in ran.stderr
    assert "DFS900" not in ran.stderr
