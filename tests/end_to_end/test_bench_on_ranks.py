"""`dfsc bench` on real ranks, over gloo: what is measured, not how fast it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_ranks_measure_together_and_one_writes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["-m", "dynaflow_dsl", "bench", "--output-format", "json"]
    command += [str(ROOT / "schedules" / "llama" / "two_batch.dfs"), "--size", "16"]
    command += ["-M", "ways=2", "-M", "layers=1", "--seconds", "0.001"]
    command += ["--only", "eager", "--only", "sequential", "--only", "scheduled"]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (result,) = json.loads(ran.stdout)["results"]
    assert result["ranks"] == 2
    assert result["sizes"] == {"batch": 16}
    for row in result["contenders"].values():
        assert len(row["wall"]) == len(row["steady"]) == 5
        assert row["apart"] < 1e-4
