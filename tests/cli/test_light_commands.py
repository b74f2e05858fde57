"""Commands that run no model import no torch, and nothing else that is large."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import LIGHT_COMMANDS, NEED_TORCH, run
from tests.cli.conftest import Workspace
from tests.project.commands import ROOT

# What `pip install --no-deps` leaves out, and what the runtime stands on.
ABSENT = ("torch", "numpy", "sympy", "transformers", "triton")

# None in `sys.modules` is how Python refuses an import.
LAUNCHER = f"""
import sys
sys.modules.update(dict.fromkeys({ABSENT!r}))
from dynaflow_dsl.cli.main import main
main()
"""

COMMANDS = {
    "check": ["check", "stack.dfs"],
    "fmt": ["fmt", "--check", "stack.dfs"],
    "show": ["show", "--parts", "stack.dfs"],
    "diff": ["diff", "stack.dfs", "stack.dfs"],
    "explain": ["explain", "DFS302"],
}


@pytest.fixture
def traced(workspace: Workspace) -> Path:
    assert run(["trace", "stack.dfs"]) == 0
    return workspace.folder


@pytest.mark.parametrize("name", LIGHT_COMMANDS)
def test_they_run_where_torch_is_not_installed(traced: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *COMMANDS[name]],
        cwd=traced,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if name == "check":
        assert "fine, with stack.graph.json" in done.stderr


@pytest.mark.parametrize("name", NEED_TORCH)
def test_one_that_runs_a_model_says_what_to_install(traced: Path, name: str) -> None:
    words = [name, "stack.dfs", *(["-o", "trace.json"] if name == "profile" else [])]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *words],
        cwd=traced,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    message, command = done.stderr.split(": pip install ")
    assert message == (f"Error: `dfsc {name}` runs models, and torch is not installed")
    assert command.startswith('"torch')
