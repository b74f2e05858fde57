"""The steps of action.yml, run in a repository with what GitHub's runner sets."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.project.commands import ROOT
from tests.workflow.repository import (
    change,
    environment,
    evaluate,
    git,
    make_repository,
)

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
ANNOTATION = re.compile(
    r"^::(\w+) file=([^,]+),line=(\d+),col=\d+,title=(DFS\d+)", re.M
)


@dataclass
class Outcome:
    """What a run of the action gave."""

    failed: list[str]
    output: str
    summary: str


def run_action(folder: Path, **given: str) -> Outcome:
    """Run all steps as a runner does: in order, the rest after a failure where `if`
    says so.
    """
    defaults = {
        name: "" if "github." in str(each["default"]) else str(each["default"])
        for name, each in ACTION["inputs"].items()
    }
    inputs = {**defaults, "install": "false", **given}
    assert inputs.keys() == defaults.keys()
    summary = folder.parent / "summary.md"
    summary.write_text("")
    failed: list[str] = []
    output = ""
    for step in ACTION["runs"]["steps"]:
        condition = step.get("if")
        wanted = evaluate(condition, inputs) if condition else True
        goes_on = condition is not None and "!cancelled()" in condition
        if not wanted or (failed and not goes_on):
            continue
        done = run_step(step, folder, inputs, summary)
        output += done.stdout + done.stderr
        if done.returncode:
            failed.append(step["name"])
    return Outcome(failed, output, summary.read_text())


def run_step(
    step: Mapping[str, Any],
    folder: Path,
    inputs: Mapping[str, str],
    summary: Path,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    assert step["shell"] == "bash"
    script = folder.parent / "step.sh"
    script.write_text(step["run"])
    own = {k: str(evaluate(v, inputs)) for k, v in step.get("env", {}).items()}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=folder,
        env=environment(
            CI="true",
            GITHUB_ACTIONS="true",
            GITHUB_WORKSPACE=str(folder),
            GITHUB_STEP_SUMMARY=str(summary),
            GITHUB_ACTION_PATH=str(ROOT),
            **own,
            **more,
        ),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    make_repository(folder)
    return folder


def test_what_is_right_passes_without_annotations(repository: Path) -> None:
    done = run_action(repository, base=git(repository, "rev-parse", "HEAD"))
    assert done.failed == []
    assert ANNOTATION.findall(done.output) == []
    assert done.summary == "### Schedules\n\n"


def test_a_mistake_is_an_annotation_at_its_line(repository: Path) -> None:
    change(repository / "schedules" / "stack.dfs", ".norm + .up", ".norm  +  .upp")
    done = run_action(repository)
    assert done.failed == ["Layout of schedules", "Generated modules"]
    assert ("error", "schedules/stack.dfs", "12", "DFS021") in ANNOTATION.findall(
        done.output
    )
    assert ("error", "schedules/stack.dfs", "12", "DFS201") in ANNOTATION.findall(
        done.output
    )


def test_a_stale_module_fails_and_the_change_is_said(repository: Path) -> None:
    base = git(repository, "rev-parse", "HEAD")
    change(repository / "schedules" / "stack.dfs", "half by 1", "half by 0")
    git(repository, "commit", "--quiet", "--all", "--message", "Another stagger")
    done = run_action(repository, base=base)
    assert done.failed == ["Generated modules"]
    assert "::error file=schedules/stack.dfs,title=DFS501 module-stale::" in done.output
    assert done.summary == (
        "### Schedules\n\n"
        "#### `schedules/stack.dfs`\n\n"
        "1 change.\n\n"
        "**schedule stack_halves**\n\n"
        "- the stagger goes by 0 now, was by 1\n"
    )


def test_the_base_is_fetched_into_a_checkout_of_one_commit(repository: Path) -> None:
    base = git(repository, "rev-parse", "HEAD")
    change(repository / "schedules" / "stack.dfs", "half by 1", "half by 0")
    git(repository, "commit", "--quiet", "--all", "--message", "Another stagger")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    clone = repository.parent / "clone"
    url = f"file://{repository}"
    git(repository.parent, "clone", "--quiet", "--depth=1", url, str(clone))
    done = run_action(clone, base=base, compile="false")
    assert done.failed == []
    assert "the stagger goes by 0 now" in done.summary


def test_inputs_choose_what_is_run(repository: Path) -> None:
    (repository / "targets.py").write_text("raise RuntimeError\n")
    (repository / "other").mkdir()
    change(repository / "schedules" / "stack.dfs", "stream side", "strem side")
    done = run_action(repository, compile="false", diff="false", paths="schedules")
    assert done.failed == ["Layout of schedules", "Schedules"]
    assert done.summary == ""


def test_the_first_step_installs_the_checkout_of_the_action(tmp_path: Path) -> None:
    (step,) = [s for s in ACTION["runs"]["steps"] if s["name"] == "Install dfsc"]
    target = tmp_path / "target"
    folder = tmp_path / "repository"
    folder.mkdir()
    done = run_step(
        step,
        folder,
        {"install": "true"},
        tmp_path / "summary.md",
        # What is installed here is enough to build with. That "false" switches the
        # isolation off is how pip reads it.
        PIP_NO_DEPS="1",
        PIP_NO_BUILD_ISOLATION="false",
        PIP_TARGET=str(target),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )
    assert done.returncode == 0, done.stderr
    (folder / "a.dfs").write_text("dfs 1\n")
    checked = subprocess.run(
        [sys.executable, target / "bin" / "dfsc", "check", "a.dfs"],
        cwd=folder,
        env={**environment(), "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stderr == "a.dfs: text and names are fine\n"


def test_no_input_is_put_into_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]


def test_the_page_lists_every_input() -> None:
    page = (ROOT / "docs" / "pull_requests.md").read_text()
    assert [name for name in ACTION["inputs"] if f"| `{name}` |" not in page] == []
