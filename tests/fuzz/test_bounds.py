"""Deep, long and odd input; files that vanish, lead in circles or cannot be written."""

from __future__ import annotations

import cProfile
import os
import pstats
from pathlib import Path

import pytest

from dynaflow_dsl import imports, pipeline
from dynaflow_dsl.cli.main import run
from dynaflow_dsl.source import Source
from tests.cli.conftest import SCHEDULE, TARGETS, Workspace
from tests.fuzz.watching import diagnose, watchdog


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")


def deep(before: str, opening: str, inside: str, closing: str, after: str) -> str:
    many = f"{opening * 10**5}{inside}{closing * 10**5}"
    return f"dfs 1\n\nschedule s:\n    {before}{many}{after}\n"


DEEP = {
    "brackets": deep("split b into ", "(", "2", ")", " as h"),
    "lists": deep("split b into ", "[", "2", "]", " as h"),
    "never closed": deep("split b into ", "(", "", "", ""),
    "closed only": deep("split b into ", "", "2", ")", " as h"),
    "sums": deep("split b into ", "1 + ", "2", "", " as h"),
    "not": deep("require ", "not ", "true", "", ""),
    "selectors": deep("part p = ", "(", ".a", ")", ""),
    "path": deep("part p = ", ".a", "", "", ""),
    "window": "dfs 1\n\nschedule s:\n    order:\n        " + "a | " * 10**5 + "b\n",
    "blocks": "dfs 1\n" + "".join(f"{' ' * i}schedule s:\n" for i in range(1500)),
    "one word": "dfs 1\n\n" + "a" * 10**6 + "\n",
    "one number": deep("split b into ", "9", "", "", " as h"),
    "line ends": "dfs 1\n" + "\r\n" * 10**5,
    "null bytes": "dfs 1\n" + "\0" * 10**5,
}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("command", ["check", "fmt", "show"])
def test_deep_and_long(name: str, command: str) -> None:
    Path("a.dfs").write_text(DEEP[name], newline="")
    code, shown = diagnose(command, "a.dfs")
    assert name == "line ends" or code == 1
    # An excerpt shows what is wrong, not all there is.
    assert len(shown) < 20_000


def lines_of(count: int) -> str:
    parts = "".join(f"        part p{i} = .a{i}\n" for i in range(count // 2))
    windows = "".join(f"            p{i}\n" for i in range(count // 2))
    head = "dfs 1\n\nschedule s:\n    each layer in .m.*:\n"
    return f"{head}{parts}\n        order:\n{windows}"


def calls(*words: str) -> int:
    """How many functions a command calls: its work, whatever the machine does."""
    profile = cProfile.Profile()
    with watchdog(120):
        profile.enable()
        diagnose(*words)
        profile.disable()
    return pstats.Stats(profile).prim_calls  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("words", [["check"], ["fmt", "--check"], ["diff", "c.dfs"]])
def test_work_grows_with_the_lines(words: list[str]) -> None:
    Path("a.dfs").write_text(lines_of(2_500))
    Path("b.dfs").write_text(lines_of(10_000))
    Path("c.dfs").write_text(lines_of(20))
    calls(*words, "a.dfs")  # tables and pages are read once
    small, large = calls(*words, "a.dfs"), calls(*words, "b.dfs")
    assert large < 4.6 * small


@pytest.mark.parametrize("count", [2, 3, 40])
def test_imports_in_a_circle(count: int) -> None:
    for number in range(count):
        other = (number + 1) % count
        Path(f"f{number}.dfs").write_text(
            f'dfs 1\n\nfrom "f{other}.dfs" import p{other}\n\n'
            f"parts p{number}:\n    part a = .b\n"
        )
    code, shown = diagnose("check", "f0.dfs")
    assert code == 1
    assert "error[DFS104]: these files import each other" in shown
    code, _ = diagnose("diff", "f0.dfs", "f1.dfs")
    assert code == 0


def test_a_long_chain_of_imports_is_read() -> None:
    for number in range(500):
        more = f'from "f{number + 1}.dfs" import p{number + 1}\n\n'
        text = f"dfs 1\n\n{more if number < 499 else ''}parts p{number}:\n"
        Path(f"f{number}.dfs").write_text(f"{text}    part a = .b\n")
    code, shown = diagnose("check", "f0.dfs")
    assert (code, shown.count("error[DFS103]")) == (1, 1)


def test_a_file_that_vanishes_between_two_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("main.dfs").write_text('dfs 1\n\nfrom "parts.dfs" import p\n')
    Path("parts.dfs").write_text("dfs 1\n")
    exists = Path.is_file

    def vanish(path: Path) -> bool:
        found = exists(path)
        if path.name == "parts.dfs":
            path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(imports.Path, "is_file", vanish)
    code, shown = diagnose("check", "main.dfs")
    assert code == 1
    assert "cannot be imported: No such file or directory" in shown


def test_a_schedule_that_vanishes_after_it_was_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("a.dfs").write_text("dfs 1\n")
    Path("b.dfs").write_text("dfs 1\n")
    read = pipeline.read_source

    def vanish(path: str | Path) -> object:
        Path("b.dfs").unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(pipeline, "read_source", vanish)
    code, shown = diagnose("check", ".")
    assert code == 2
    assert "a.dfs: text and names are fine" in shown
    assert "b.dfs cannot be read: No such file or directory" in shown


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfed\x00f\x00s\x00",
        "dfs 1\n# größer\n".encode("latin-1"),
        b"dfs 1\n\x80",
        b"\xed\xa0\x80",
    ],
)
@pytest.mark.parametrize("command", ["check", "fmt", "show", "compile", "verify"])
def test_encodings_that_cannot_be_read(data: bytes, command: str) -> None:
    Path("a.dfs").write_bytes(data)
    code, shown = diagnose(command, "a.dfs")
    assert code == 2
    assert "a.dfs cannot be read: it is not UTF-8 text (byte " in shown
    assert Path("a.dfs").read_bytes() == data


@pytest.mark.parametrize("command", ["check", "fmt", "show", "compile", "verify"])
@pytest.mark.parametrize("name", ["a\0b.dfs", "x" * 5000, "a.dfs/b.dfs"])
def test_names_that_no_file_can_have(command: str, name: str) -> None:
    Path("a.dfs").write_text("dfs 1\n")
    code, shown = diagnose(command, name)
    assert code == 2
    assert "cannot be read: " in shown


@pytest.mark.parametrize("command", ["check", "fmt", "compile", "verify"])
def test_links_in_a_circle(command: str) -> None:
    Path("a.dfs").symlink_to("b.dfs")
    Path("b.dfs").symlink_to("a.dfs")
    Path("folder").symlink_to(".")
    code, shown = diagnose(command, "a.dfs")
    assert code == 2
    assert "a.dfs cannot be read: " in shown
    Path("c.dfs").write_text("dfs 1\n")
    code, shown = diagnose("check", ".")
    assert code == 2
    # A link to a folder is not followed, so nothing is found twice.
    assert shown.count("c.dfs: text and names are fine") == 1


def test_an_import_through_links_in_a_circle() -> None:
    Path("a.dfs").symlink_to("b.dfs")
    Path("b.dfs").symlink_to("a.dfs")
    Path("c.dfs").write_text('dfs 1\n\nfrom "a.dfs" import p\n')
    code, shown = diagnose("check", "c.dfs")
    assert code == 1
    assert "error[DFS113]" in shown


def test_a_folder_where_a_file_should_be() -> None:
    Path("a.dfs").mkdir()
    Path("a.dfs/inside.dfs").write_text("dfs 1\n")
    Path("b.dfs").write_text('dfs 1\n\nfrom "a.dfs" import p\n')
    Path("b.graph.json").mkdir()
    assert diagnose("check", "a.dfs")[0] == 0
    code, shown = diagnose("check", "b.dfs")
    assert code == 1
    assert "cannot be imported: it is no file" in shown


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_folder_that_is_closed(workspace: Workspace) -> None:
    (workspace.folder / "executors").mkdir()
    (workspace.folder / "executors").chmod(0o500)
    code, shown = diagnose("compile", "stack.dfs")
    assert code == 2
    assert "cannot be written: Permission denied" in shown


def test_output_that_the_system_refuses(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["compile", "stack.dfs"]) == 0
    before = workspace.files()
    workspace.change(workspace.schedule, "half by 1", "half by 0")
    changed = workspace.schedule.read_text()

    def refuse(path: Path, target: Path) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(Path, "replace", refuse)
    code, shown = diagnose("compile", "stack.dfs")
    assert code == 2
    assert "error[DFS506]: executors/stack_halves.py cannot be written: Read-only" in (
        shown
    )
    assert workspace.files() == {**before, "stack.dfs": changed}


# A module that cannot be imported without being noticed.
TRAP = """\
from pathlib import Path

Path("executed").write_text("")
raise SystemExit("a model was imported")
"""


@pytest.mark.parametrize(
    "words", [["check"], ["fmt", "--check"], ["show"], ["show", "--parts"]]
)
def test_no_code_of_a_schedule_or_a_model_is_run(
    words: list[str], workspace: Workspace
) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    text = SCHEDULE.replace("schedule", 'kernel k = "targets:k"\n\nschedule', 1)
    (workspace.folder / "kernel.dfs").write_text(text)
    workspace.targets.write_text(TRAP)
    assert TRAP not in TARGETS
    # Beside the schedules, under every name that an import could look for.
    for name in ("click.py", "lark.py", "targets/__init__.py", "conftest.py"):
        path = workspace.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(TRAP)
    code, _ = diagnose(*words, "stack.dfs")
    assert code == 0
    diagnose(*words, "kernel.dfs")
    assert not (workspace.folder / "executed").exists()


def test_the_trap_is_noticed_where_a_model_is_run(workspace: Workspace) -> None:
    workspace.targets.write_text(TRAP)
    assert diagnose("compile", "stack.dfs")[0] == 2
    assert (workspace.folder / "executed").exists()


def test_a_source_of_one_long_line_is_quick_to_look_up() -> None:
    source = Source("a.dfs", "x" * 10**6)
    assert source.position(999_999) == (1, 1_000_000)
