"""What other processes find: the same bytes, and the backend by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.integrations.dynamo.models import (
    write,
)

PROGRAM = """
import torch
from dynaflow_dsl.integrations.dynamo.backend import register
from tests.integrations.dynamo.models import Stack, evaluated

register()
step = torch.compile(
    evaluated(Stack()),
    backend="dynaflow",
    options={"schedule": "halves.dfs", "compile": False, "module": MODULE,
             "dims": {"x": ("batch", None)}},
)
with torch.no_grad():
    step(torch.randn(4, 8))
"""


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path)
    for number in (1, 2):
        run(PROGRAM.replace("MODULE", repr(f"out_{number}")), seed=number)
    for name in ("halves.py", "halves.map.json"):
        one, other = (tmp_path / f"out_{n}" / name for n in (1, 2))
        assert one.read_bytes() == other.read_bytes()
    second_line = (tmp_path / "out_1" / "halves.py").read_text().splitlines()[1]
    assert second_line.endswith("dynamo, float32, cpu")


def run(program: str, seed: int = 0, path: str = "") -> None:
    root = str(Path(__file__).parents[3])
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={
            "PYTHONPATH": f"{root}:{path}" if path else root,
            "PYTHONHASHSEED": str(seed),
            "PATH": "",
            "HOME": str(Path.cwd()),
        },
    )


def test_an_installation_makes_the_backend_known(tmp_path: Path) -> None:
    """The entry point alone, as an installed package has it."""
    write(tmp_path)
    folder = tmp_path / "installed" / "dynaflow_test-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: dynaflow-test\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(
        "[torch_dynamo_backends]\n"
        "dynaflow = dynaflow_dsl.integrations.dynamo.backend:dynaflow\n"
    )
    program = PROGRAM.replace("MODULE", "'out'")
    program = program.replace("register()\n", "", 1)
    program = "\n".join(
        line for line in program.splitlines() if "import register" not in line
    )
    run(program, path=str(folder.parent))
    assert (tmp_path / "out" / "halves.py").exists()
