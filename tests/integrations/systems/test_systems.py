"""Models of other systems run scheduled, and give what their own code gives."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

pytestmark = pytest.mark.timeout(900)

# In seconds; imports alone take long.
LIMIT = 400


compiled = pytest.mark.parametrize("compiled", [False, True], ids=["text", "compiled"])


def run(
    script: str, folder: Path, ranks: int = 1, *, compiled: bool
) -> list[dict[str, Any]]:
    """What a script of this folder says, on every rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HERE / f"{script}.py")],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "HF_HUB_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
                "COMPILED": "1" if compiled else "0",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    failed = [
        errors
        for process, (_, errors) in zip(processes, said, strict=True)
        if process.returncode != 0
    ]
    assert not failed, "\n\n".join(errors[-3000:] for errors in failed)
    return [json.loads(output.splitlines()[-1]) for output, _ in said]


def check(said: dict[str, Any], parts: dict[str, Sequence[str]]) -> None:
    """Results are those of the model's own code, and came out of pieces."""
    assert said["largest"] > 0.1
    assert said["furthest"] <= 1e-5 * max(1, said["largest"])
    # Each step is asked whether it fills its pieces, and those of one row do not.
    assert said["pieces"] == {"4": 2, "7": 2, "1": 1}
    assert {name: tuple(paths) for name, paths in said["parts"]} == {
        name: tuple(paths) for name, paths in parts.items()
    }


def layers(path: str, count: int) -> tuple[str, ...]:
    return tuple(f"{path}.{number}" for number in range(count))


@pytest.mark.system("torchtitan")
@compiled
def test_torchtitan(tmp_path: Path, compiled: bool) -> None:
    (said,) = run("torchtitan_llama", tmp_path, compiled=compiled)
    check(said, {"attn": layers("layers", 6), "mlp": layers("layers", 6)})


@pytest.mark.system("megatron")
@compiled
def test_megatron(tmp_path: Path, compiled: bool) -> None:
    (said,) = run("megatron_gpt", tmp_path, compiled=compiled)
    each = layers("decoder.layers", 3)
    check(said, {"embed": ("",), "attn": each, "mlp": each})


@pytest.mark.system("megatron")
@compiled
def test_megatron_on_two_ranks(tmp_path: Path, compiled: bool) -> None:
    each = layers("decoder.layers", 3)
    names = ("attn", "attn_reduce", "mlp", "mlp_reduce")
    for said in run("megatron_gpt", tmp_path, ranks=2, compiled=compiled):
        check(said, {"embed": ("",), **dict.fromkeys(names, each)})


@pytest.mark.system("xfuser")
@compiled
def test_xdit(tmp_path: Path, compiled: bool) -> None:
    (said,) = run("xdit_flux", tmp_path, compiled=compiled)
    each = layers("transformer_blocks", 3)
    check(said, {"attn": each, "mlp": each})


@pytest.mark.system("fastvideo")
@compiled
def test_fastvideo(tmp_path: Path, compiled: bool) -> None:
    (said,) = run("fastvideo_wan", tmp_path, compiled=compiled)
    check(said, {"attn": layers("blocks", 3), "mlp": layers("blocks", 3)})


def lines_to_integrate(script: str) -> int:
    """How many lines of a script a user adds to what runs the model unscheduled."""
    text = (HERE / f"{script}.py").read_text()
    added = re.findall(r"^# What a user adds.*?\n(.*?)^# So much\.", text, re.M | re.S)
    assert added
    return sum(len(block.splitlines()) for block in added) - text.count("**PARTS,")


@pytest.mark.parametrize(
    ("system", "script"),
    [
        ("torchtitan", "torchtitan_llama"),
        ("Megatron-core", "megatron_gpt"),
        ("xDiT", "xdit_flux"),
        ("FastVideo", "fastvideo_wan"),
    ],
)
def test_the_table_counts_the_lines(system: str, script: str) -> None:
    document = (ROOT / "docs" / "integrations.md").read_text()
    rows = re.findall(rf"^\| {system}[^|]*\|[^|]*\|\s*(\d+)", document, re.M)
    assert rows
    assert {int(row) for row in rows} == {lines_to_integrate(script)}


def test_the_table_has_the_versions_that_are_installed() -> None:
    document = (ROOT / "docs" / "integrations.md").read_text()
    systems, *_ = (HERE / "requirements.txt").read_text().split("\n\n")
    pinned = re.findall(r"^([\w-]+)==([\d.]+)$", systems, re.M)
    assert len(pinned) == 4
    for package, version in pinned:
        assert f"`{package}` {version}" in document
