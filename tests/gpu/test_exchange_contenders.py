"""Captured exchanges that schedules are measured beside: run with `pytest -m gpu`.

Over NCCL on two devices, or on one with itself: see `exchange_contenders.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]


def test_captured_exchanges_give_what_the_operators_give() -> None:
    ranks = min(torch.cuda.device_count(), 2)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks)]
    command += [str(ROOT / "tests" / "gpu" / "exchange_contenders.py")]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT), os.environ.get("PYTHONPATH", "")]
            ),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.rstrip().endswith("all ok"), ran.stdout
