"""docs/parallel.md: a saved model on two processes that torchrun starts."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from dynaflow_dsl.models.cache import CachedDecoder
from dynaflow_dsl.models.checkpoint import saved_model
from dynaflow_dsl.models.decoder import decoder_spec, random_model
from dynaflow_dsl.models.llama import LLAMA

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "parallel.md").read_text("utf-8")


def written(name: str) -> str:
    """The block of the document that begins with a file's name."""
    found = re.search(rf"```\w+\n(# {re.escape(name)}\n.*?)```", DOCUMENT, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The document's files beside a small saved model, with its module compiled."""
    folder = tmp_path_factory.mktemp("ranks")
    config = LLAMA.configuration({"layers": 2}, 64)
    random_model(LlamaForCausalLM, config).save_pretrained(folder / "checkpoint")
    for name in ("two_batch.dfs", "serve.py"):
        (folder / name).write_text(written(name), encoding="utf-8")
    ran = run(folder, sys.executable, "-m", "dynaflow_dsl", "compile", "two_batch.dfs")
    assert ran.returncode == 0, ran.stderr
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(folder)])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def torchrun(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    launcher = (sys.executable, "-m", "torch.distributed.run")
    return run(folder, *launcher, "--nproc-per-node", "2", *arguments)


@pytest.mark.slow
def test_the_script_gives_what_one_process_does(folder: Path) -> None:
    ran = torchrun(folder, "serve.py")
    assert ran.returncode == 0, ran.stderr
    whole = saved_model(str(folder / "checkpoint"))
    spec = decoder_spec(whole, capacity=64, sequence=16)
    torch.manual_seed(0)
    arguments = spec.entries["prefill"].arguments({"batch": 4})
    with torch.no_grad():
        expected = CachedDecoder(whole)(*arguments)[:, -1].argmax(-1).tolist()
    assert ast.literal_eval(ran.stdout.strip().splitlines()[-1]) == expected


@pytest.mark.slow
def test_verify_runs_on_all_ranks(folder: Path) -> None:
    command = ("-m", "dynaflow_dsl", "verify", "two_batch.dfs", "--text-only")
    ran = torchrun(folder, *command, "--batch", "3")
    assert ran.returncode == 0, ran.stderr
    # One rank tells of it.
    assert ran.stdout.count("entry decode: ok") == 1
    assert "the model's own loop with decode and prefill scheduled: ok" in ran.stdout
    assert "3 rows of 16 tokens, seed 0: equal" in ran.stdout


@pytest.mark.slow
def test_a_target_for_another_number_of_ranks_is_refused(folder: Path) -> None:
    command = ("-m", "dynaflow_dsl", "verify", "two_batch.dfs", "-M", "ways=4")
    ran = torchrun(folder, *command)
    assert ran.returncode != 0
    assert "DFS110" in ran.stderr
    assert "the target is for 4 ranks, and 2 processes run" in ran.stderr
    assert "give it ways = 2" in ran.stderr
