"""Running the project's tools as a developer would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; output is captured, and no exit code is an error."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def passes(*command: str | Path) -> None:
    """Fail with the command's output unless it exits with 0."""
    done = run(*command)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
