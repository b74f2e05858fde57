"""The shipped strategies on real ranks, over gloo.

On every rank scheduled steps have the bits of the same microbatches in program order
and the results of the unscheduled model; a generation loop gives the whole model's
tokens.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "ranks", "batch", "options"),
    [
        ("llama/two_batch.dfs", 2, 16, ()),
        ("llama/two_batch.dfs", 4, 16, ()),
        ("llama/nanoflow.dfs", 4, 64, ("-F", "arch=sm90")),
        ("llama/tokenweave.dfs", 2, 3, ()),
        ("llama/tokenweave.dfs", 4, 4, ()),
        ("llama/slow_links.dfs", 2, 16, ()),
        ("llama/slow_links.dfs", 4, 32, ()),
        ("llama/async_tp.dfs", 2, 64, ()),
        ("moe/two_batch.dfs", 2, 3, ()),
        ("moe/two_batch.dfs", 4, 4, ()),
        ("moe/shared_expert.dfs", 2, 3, ()),
    ],
)
def test_a_strategy_gives_the_whole_models_results(
    name: str, ranks: int, batch: int, options: tuple[str, ...], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += ["--nproc-per-node", str(ranks), "-m", "dynaflow_dsl", "verify"]
    command += [str(ROOT / "schedules" / name), "-o", str(tmp_path), "--text-only"]
    command += ["-M", f"ways={ranks}", "-M", "layers=2", "--batch", str(batch)]
    ran = subprocess.run(
        [*command, *options],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no race, no early free, joined" in ran.stdout
    assert "the model's own loop with decode scheduled: ok" in ran.stdout
