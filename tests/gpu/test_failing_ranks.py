"""A rank dies while its steps and those of the other one are under way, on two GPUs.

What they wait in are flags in memory of the host, barriers in symmetric memory, and
kernels of NCCL, of which in replayed graphs NCCL's own watchdog knows nothing. All
cases run at once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.gpu import failing_ranks

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
LLAMA = "dynaflow_dsl.models.tensor_parallel:llama"
QWEN = "dynaflow_dsl.models.expert_parallel:qwen3_moe"

BATCH, TIMEOUT = failing_ranks.BATCH, failing_ranks.TIMEOUT

# The shipped file, its target, NCCL_P2P_DISABLE, and how its steps run.
CASES = {
    "host memory, captured": ("llama/slow_links.dfs", LLAMA, "1", "captured"),
    "host memory, eager": ("llama/slow_links.dfs", LLAMA, "1", "eager"),
    "symmetric memory, captured": ("moe/two_batch.dfs", QWEN, "0", "captured"),
    "NCCL, captured": ("llama/two_batch.dfs", LLAMA, "0", "captured"),
}


@dataclass
class Case:
    """Two processes that run, and the schedule file that their module is of."""

    file: Path
    ranks: list[subprocess.Popen[str]]


def start(folder: Path, file: str, target: str, disabled: str, how: str) -> Case:
    """Compile for one size, and start the ranks."""
    text = (ROOT / "schedules" / file).read_text(encoding="utf-8")
    text = re.sub(r"\n +capture .*", "", text)
    text = re.sub(
        r"\n( +)stream ", rf"\n\1capture batch at [{BATCH}]\n\1stream ", text, count=1
    )
    shutil.copytree((ROOT / "schedules" / file).parent, folder, dirs_exist_ok=True)
    path = folder / Path(file).name
    path.write_text(text, encoding="utf-8")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "NCCL_P2P_DISABLE": disabled,
    }
    command = [sys.executable, "-m", "dynaflow_dsl", "compile", path.name]
    options = failing_ranks.LLAMA if target == LLAMA else failing_ranks.OPTIONS
    for name, value in options.items():
        command += ["-M", f"{name}={str(value).lower()}"]
    compiled = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr
    (module,) = (folder / "executors").glob("*.py")
    ranks = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.gpu.failing_ranks"),
                *(str(rank), str(folder / "store"), str(module), target, how),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        for rank in range(2)
    ]
    return Case(path, ranks)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    folders = {name: tmp_path_factory.mktemp("case") for name in CASES}
    with ThreadPoolExecutor() as threads:
        begun = {
            name: threads.submit(start, folders[name], *case)
            for name, case in CASES.items()
        }
    try:
        yield {name: one.result() for name, one in begun.items()}
    finally:
        for one in begun.values():
            if one.exception() is None:
                for rank in one.result().ranks:
                    rank.kill()


@pytest.mark.parametrize("name", CASES)
def test_the_other_rank_names_the_step_and_ends(
    cases: dict[str, Case], name: str
) -> None:
    case = cases[name]
    living, dying = case.ranks
    out, error = dying.communicate(timeout=120)
    assert (out, dying.returncode) == ("running\n", 3), error
    began = time.monotonic()
    out, error = living.communicate(timeout=120)
    print(error)  # seen where the test fails
    assert time.monotonic() - began < TIMEOUT + 5
    assert living.returncode != 0
    said = next(line for line in error.splitlines() if "DFS816" in line)
    place = rf"(\w+)\[[01]\], layer \d+ \(\S*{case.file.name}:(\d+):\d+\)"
    found = re.search(f"; the device has last begun {place}", said)
    assert found is not None, said
    # The line of the schedule that runs this part.
    line = case.file.read_text(encoding="utf-8").splitlines()[int(found[2]) - 1]
    assert line.strip() == found[1]
