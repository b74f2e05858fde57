"""A repository of a user's, and commands that are run in it as services run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli.conftest import SCHEDULE, TARGETS
from tests.project.commands import ROOT, SCRIPTS

SETTINGS = """\
[tool.dfsc]
schedules = ["schedules"]
"""


def environment(**more: str) -> dict[str, str]:
    """What a service sets, with the `dfsc` of this checkout on the path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB", "DFSC"))}
    path = os.pathsep.join([str(SCRIPTS), kept.get("PATH", "")])
    return {
        **kept,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")]),
        "NO_COLOR": "1",
        **more,
    }


def command(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; no exit code is an error."""
    return subprocess.run(
        words,
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )


def git(folder: Path, *words: str) -> str:
    """Run git as somebody; the result is what it prints."""
    names = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = command(folder, "git", *names, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make_repository(folder: Path) -> None:
    """A schedule, its model, its module and settings, committed."""
    (folder / "schedules").mkdir()
    (folder / "schedules" / "stack.dfs").write_text(SCHEDULE)
    (folder / "targets.py").write_text(TARGETS)
    (folder / "pyproject.toml").write_text(SETTINGS)
    done = command(folder, sys.executable, "-m", "dynaflow_dsl", "compile")
    assert done.returncode == 0, done.stderr
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "A schedule and its module")


def change(path: Path, old: str, new: str) -> None:
    """Replace a text that must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def evaluate(expression: str, inputs: Mapping[str, str]) -> str | bool:
    """The few expressions of GitHub's that the action uses."""
    text = expression.strip().removeprefix("${{").removesuffix("}}").strip()
    if re.fullmatch(r"inputs\.\w+", text):
        return inputs[text.removeprefix("inputs.")]
    terms = []
    for term in text.split("&&"):
        if term.strip() == "!cancelled()":
            terms.append(True)
            continue
        match = re.fullmatch(r"\s*inputs\.(\w+) (==|!=) '(\w*)'\s*", term)
        assert match is not None, f"unknown expression {term}"
        terms.append((inputs[match[1]] == match[3]) is (match[2] == "=="))
    return all(terms)
