"""Which modules are orphans, and above all which are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run
from dynaflow_dsl.cli.orphans import find_orphans
from tests.cli.conftest import SCHEDULE, Workspace


def reasons(workspace: Workspace, folder: str = "executors") -> list[str]:
    return [orphan.reason for orphan in find_orphans(Path(folder), [])]


@pytest.fixture(params=["project", "no project"])
def made(request: pytest.FixtureRequest, workspace: Workspace) -> Workspace:
    """A module of a schedule in a folder, in a project or without one."""
    if request.param == "project":
        (workspace.folder / "pyproject.toml").write_text("")
    (workspace.folder / "deep" / "er").mkdir(parents=True)
    workspace.schedule.rename(workspace.folder / "deep" / "er" / "stack.dfs")
    assert run(["compile", "deep"]) == 0
    return workspace


def moved(made: Workspace) -> Path:
    return made.folder / "deep" / "er" / "stack.dfs"


def test_a_module_of_a_schedule_elsewhere_is_none(made: Workspace) -> None:
    assert reasons(made) == []
    moved(made).write_text(SCHEDULE.replace("stream side", "strem side"))
    # Nobody knows what a file makes before its mistakes are corrected.
    assert reasons(made) == []
    moved(made).write_bytes(b"\xff")
    assert reasons(made) == []


def test_a_schedule_that_went_leaves_one(made: Workspace) -> None:
    moved(made).unlink()
    (reason,) = reasons(made)
    assert reason.endswith("stack.dfs is gone")


def test_a_schedule_that_was_renamed_leaves_one(made: Workspace) -> None:
    moved(made).write_text(SCHEDULE.replace("stack_halves", "other"))
    (reason,) = reasons(made)
    assert reason.endswith("stack.dfs makes executors/other.py now")


def test_a_file_without_schedules_leaves_one(made: Workspace) -> None:
    moved(made).write_text("dfs 1\n")
    (reason,) = reasons(made)
    assert reason.endswith("stack.dfs has no schedule any more")


def test_modules_of_another_project_are_left_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace.folder / "pyproject.toml").write_text("")
    assert workspace.compile() == 0
    other = workspace.folder / "other"
    other.mkdir()
    (other / "pyproject.toml").write_text("")
    monkeypatch.chdir(other)
    assert reasons(workspace, "../executors") == []
    (other / "a.dfs").write_text("dfs 1\n")
    assert run(["compile", "--prune", "a.dfs", "-o", "../executors"]) == 0
    assert workspace.module.exists()
    assert workspace.map.exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine.py", "print(1)\n"),
        ("mine.py", ""),
        ("data.map.json", "{}"),
        ("data.map.json", '{"format": 1, "module": "other.py", "body": "b"}'),
        ("data.map.json", "[" * 10_000),
        ("text.py", "\udcff"),
    ],
)
def test_what_dfsc_did_not_write_is_never_one(
    name: str, text: str, workspace: Workspace
) -> None:
    folder = workspace.folder / "executors"
    folder.mkdir()
    (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert reasons(workspace) == []
    assert run(["compile", "--prune", "stack.dfs"]) == 0
    assert (folder / name).exists()


def test_a_map_without_its_module_is_one(workspace: Workspace) -> None:
    assert workspace.compile() == 0
    workspace.schedule.unlink()
    workspace.module.unlink()
    (orphan,) = find_orphans(Path("executors"), [])
    assert orphan.kept is None
    (workspace.folder / "a.dfs").write_text("dfs 1\n")
    assert run(["compile", "--prune", "a.dfs"]) == 0
    assert not workspace.map.exists()
