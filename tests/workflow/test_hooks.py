"""The hooks of .pre-commit-hooks.yaml, on the files of a commit."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.project.commands import ROOT
from tests.workflow.repository import change, command, git, make_repository

HOOKS: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / ".pre-commit-hooks.yaml").read_text()
)
WAYS = ["by hand", "pre-commit"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    make_repository(tmp_path)
    return tmp_path


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    if request.param == "pre-commit" and find_spec("pre_commit") is None:
        pytest.skip("pre-commit is not installed")
    return str(request.param)


def run_hook(folder: Path, name: str, way: str) -> subprocess.CompletedProcess[str]:
    """A hook on all files that git knows; it fails as well when it changes one."""
    (hook,) = [each for each in HOOKS if each["id"] == name]
    if way == "by hand":
        files = [
            file
            for file in git(folder, "ls-files").splitlines()
            if re.search(hook["files"], file)
        ]
        assert files
        given = files if hook.get("pass_filenames", True) else []
        before = git(folder, "diff")
        done = command(folder, *shlex.split(hook["entry"]), *given)
        if git(folder, "diff") != before:
            done.returncode = done.returncode or 1
        return done
    # The same hook, without an environment of its own: dfsc is installed here.
    local = {"repo": "local", "hooks": [{**hook, "language": "system"}]}
    config = folder.parent / f"{folder.name}.yaml"
    config.write_text(yaml.safe_dump({"repos": [local]}))
    words = ("-m", "pre_commit", "run", "--config", str(config), "--all-files", name)
    home = str(folder.parent / f"{folder.name}-home")
    return command(folder, sys.executable, *words, PRE_COMMIT_HOME=home)


@pytest.mark.parametrize("name", [hook["id"] for hook in HOOKS])
def test_what_is_right_passes(repository: Path, name: str, way: str) -> None:
    done = run_hook(repository, name, way)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_file_is_laid_out_and_the_commit_stopped(repository: Path, way: str) -> None:
    schedule = repository / "schedules" / "stack.dfs"
    text = schedule.read_text()
    change(schedule, "part reduce = rest", "part reduce=rest")
    git(repository, "add", ".")
    assert run_hook(repository, "dfsc-fmt", way).returncode == 1
    assert schedule.read_text() == text


def test_a_mistake_stops_the_commit(repository: Path, way: str) -> None:
    change(repository / "schedules" / "stack.dfs", "stream side", "strem side")
    git(repository, "add", ".")
    done = run_hook(repository, "dfsc-check", way)
    assert done.returncode == 1
    assert "did you mean 'stream'?" in done.stdout + done.stderr


def test_a_changed_model_stops_the_commit(repository: Path, way: str) -> None:
    change(repository / "targets.py", "torch.relu", "torch.sigmoid")
    git(repository, "add", ".")
    done = run_hook(repository, "dfsc-compile-check", way)
    assert done.returncode == 1
    assert "DFS502" in done.stdout + done.stderr


def test_the_page_names_every_hook() -> None:
    page = (ROOT / "docs" / "pull_requests.md").read_text()
    assert [hook["id"] for hook in HOOKS if f"- id: {hook['id']}" not in page] == []
