import os
from pathlib import Path

import click
import pytest

from dynaflow_dsl.cli import files
from dynaflow_dsl.diagnostics import DiagnosticError


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_folders_stand_for_the_schedules_below(tmp_path: Path) -> None:
    for name in ("b/two.dfs", "b/one.dfs", "b/c/three.dfs", "b/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = files.schedule_files(["b/two.dfs", "b"])
    assert found == ("b/two.dfs", "b/c/three.dfs", "b/one.dfs")


def test_names_are_relative_however_they_were_given(tmp_path: Path) -> None:
    assert files.schedule_files([str(tmp_path / "x" / ".." / "a.dfs")]) == ("a.dfs",)


def test_a_folder_without_schedules_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(click.UsageError, match=r"no \.dfs file in empty"):
        files.schedule_files(["empty"])


def test_files_of_the_library_keep_their_names(tmp_path: Path) -> None:
    (tmp_path / "std:a.dfs").mkdir()
    assert files.schedule_files(["std:a.dfs", "std:llama/halves.dfs"]) == (
        "std:a.dfs",
        "std:llama/halves.dfs",
    )
    assert files.schedule_file("std:a.dfs") == "std:a.dfs"
    snapshot = files.snapshot_path("std:llama/halves.dfs")
    assert snapshot == Path("halves.graph.json")


def test_writing_makes_folders_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "new" / "module.py"
    files.write_text(path, "a\nb\n")
    assert path.read_bytes() == b"a\nb\n"
    assert names(path.parent) == ["module.py"]


def test_permissions_are_those_of_any_other_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    files.write_text(tmp_path / "new", "")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_permissions_of_the_old_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("old")
    path.chmod(0o600)
    files.write_text(path, "new")
    assert path.stat().st_mode & 0o777 == 0o600


def test_failing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "module.py"
    path.write_text("old")

    def refuse(self: Path, target: Path) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(DiagnosticError, match=r"DFS506.*No space left"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["module.py"]


def test_a_folder_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "module.py").mkdir()
    with pytest.raises(DiagnosticError, match="DFS506"):
        files.write_text(tmp_path / "module.py", "new")
    assert names(tmp_path) == ["module.py"]


def test_reading_what_is_not_there_or_no_text(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xff")
    assert files.read_text(tmp_path / "nothing") is None
    with pytest.raises(DiagnosticError, match=r"DFS113.*not UTF-8"):
        files.read_text(tmp_path / "latin")


def test_snapshot_lies_beside_the_schedule() -> None:
    assert files.snapshot_path("a/halves.dfs") == Path("a/halves.graph.json")


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write_text(pipe, "a\n")
        assert os.read(reading, 9) == b"a\n"
    finally:
        os.close(reading)
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]


def test_a_link_stays_and_leads_to_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    path, link = tmp_path / "inner" / "real.py", tmp_path / "link.py"
    path.write_text("old")
    link.symlink_to(path)
    files.write_text(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert names(path.parent) == ["real.py"]
