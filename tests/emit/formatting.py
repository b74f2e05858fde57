"""What `ruff format` makes of a generated module."""

from __future__ import annotations

import subprocess
import sys


def formatted(text: str) -> str:
    """The text as the formatter leaves it."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--isolated",
        "--line-length",
        "88",
    ]
    done = subprocess.run(
        [*command, "--stdin-filename", "module.py", "-"],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout
