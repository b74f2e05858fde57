"""What can be imported, and from where."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl import pipeline, resources
from dynaflow_dsl.diagnostics import Diagnostic, render
from dynaflow_dsl.pipeline import read_schedule

GROUP = """\
dfs 1
parts layer:
    part attn on side = .self_attn
    part mlp = rest
"""
USE = """\
dfs 1
from "{file}" import layer
schedule s:
    stream side
    each layers in .model.layers.*:
        use layer
        order:
            attn, mlp
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    (root / "schedules" / "deep").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    monkeypatch.chdir(root)
    return root


def write(path: Path, text: str = GROUP) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def use(path: Path, file: str) -> tuple[Diagnostic, ...]:
    write(path, USE.format(file=file).replace("attn, mlp", "attn\n            mlp"))
    return read_schedule(path).diagnostics


@pytest.mark.parametrize(
    ("home", "file", "target"),
    [
        ("a.dfs", "parts.dfs", "parts.dfs"),
        ("a.dfs", "./parts.dfs", "parts.dfs"),
        ("a.dfs", "lib/parts.dfs", "lib/parts.dfs"),
        ("schedules/deep/a.dfs", "../../parts.dfs", "parts.dfs"),
        ("schedules/a.dfs", "deep/../../x/parts.dfs", "x/parts.dfs"),
    ],
)
def test_paths_are_relative_to_the_file_that_imports(
    home: str, file: str, target: str, project: Path
) -> None:
    write(project / target)
    assert use(Path(home), file) == ()
    assert use(project / home, file) == ()


def refused(path: Path, file: str) -> Diagnostic:
    (found,) = use(path, file)
    assert found.code == "DFS113"
    assert found.primary is not None
    assert found.primary.span.text == f'"{file}"'
    return found


@pytest.mark.parametrize(
    "file",
    [
        "/etc/hostname",
        "C:/parts.dfs",
        "C:parts.dfs",
        "lib\\parts.dfs",
        "http://a/parts.dfs",
        "",
    ],
)
def test_what_is_no_relative_path_says_what_is_allowed(
    file: str, project: Path
) -> None:
    found = refused(Path("a.dfs"), file)
    assert "this is no relative path" in found.message
    assert "relative to the file that imports" in found.helps[0]


def test_nothing_outside_the_project_is_read(project: Path) -> None:
    write(project.parent / "parts.dfs")
    found = refused(Path("a.dfs"), "../parts.dfs")
    assert "outside the project" in found.message


def test_links_count_as_what_they_lead_to(project: Path) -> None:
    write(project.parent / "parts.dfs")
    (project / "link.dfs").symlink_to(project.parent / "parts.dfs")
    assert "outside the project" in refused(Path("a.dfs"), "link.dfs").message


def test_without_a_project_imports_stay_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynaflow_dsl.imports.project_root", lambda path: None)
    write(tmp_path / "parts.dfs")
    write(tmp_path / "below" / "deep" / "parts.dfs")
    assert use(tmp_path / "below" / "a.dfs", "deep/parts.dfs") == ()
    found = refused(tmp_path / "below" / "a.dfs", "../parts.dfs")
    assert "outside the project" in found.message


def test_a_missing_file_names_a_similar_one(project: Path) -> None:
    write(project / "parts.dfs")
    found = refused(Path("a.dfs"), "part.dfs")
    assert found.message == '"part.dfs" cannot be imported: there is no such file'
    assert found.helps == ("did you mean 'parts.dfs'?",)
    assert refused(Path("a.dfs"), "no/x.dfs").helps == ("there is no folder no",)


def test_files_that_cannot_be_read(project: Path) -> None:
    (project / "bytes.dfs").write_bytes(b"dfs 1\n\xff")
    assert "not UTF-8 text (byte 6)" in refused(Path("a.dfs"), "bytes.dfs").message
    assert "it is no file" in refused(Path("a.dfs"), "schedules").message
    (project / "big.dfs").write_text("#" * 2_000_000)
    assert "more than" in refused(Path("a.dfs"), "big.dfs").message
    (project / "loop.dfs").symlink_to(project / "loop.dfs")
    refused(Path("a.dfs"), "loop.dfs")
    refused(Path("a.dfs"), "x" * 5000)


def test_a_link_to_the_folder_itself_makes_no_endless_chain(project: Path) -> None:
    (project / "self").symlink_to(project)
    text = GROUP.replace("parts", 'from "self/b.dfs" import layer\nparts', 1)
    write(project / "b.dfs", text)
    (found,) = use(Path("a.dfs"), "b.dfs")
    assert found.code == "DFS104"
    assert found.message == "this file imports itself"


def test_the_file_itself_is_known_by_every_name(project: Path) -> None:
    (project / "again.dfs").symlink_to(project / "a.dfs")
    found = use(Path("a.dfs"), "again.dfs")
    assert "DFS104" in [each.code for each in found]


def test_a_long_chain_of_files_is_read_without_recursion(project: Path) -> None:
    for number in range(1500):
        text = f'from "p{number + 1}.dfs" import layer{number + 1}\nparts'
        name = f"layer{number or ''}:"
        group = GROUP.replace("layer:", name).replace("parts", text, 1)
        write(project / f"p{number}.dfs", group)
    write(project / "p1500.dfs", GROUP.replace("layer:", "layer1500:"))
    assert use(Path("a.dfs"), "p0.dfs") == ()


@pytest.fixture
def library(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = project.parent / "installed"
    folder = package / "schedules"
    write(folder / "llama" / "parts.dfs")
    write(folder / "llama" / "more.dfs", USE.format(file="parts.dfs") + GROUP[6:])
    monkeypatch.setattr(resources, "PACKAGE", package)
    return folder


def test_the_shipped_library(library: Path) -> None:
    assert use(Path("a.dfs"), "std:llama/parts.dfs") == ()


def test_files_of_the_library_import_each_other(library: Path) -> None:
    text = USE.format(file="parts.dfs").replace("schedule s", "schedule t")
    write(library / "llama" / "more.dfs", text)
    write(Path("a.dfs"), 'dfs 1\nfrom "std:llama/more.dfs" import t\n')
    (found,) = read_schedule("a.dfs").diagnostics
    assert found.code == "DFS103"
    write(library / "llama" / "more.dfs", text.replace("parts.dfs", "absent.dfs"))
    codes = [each.code for each in read_schedule("a.dfs").diagnostics]
    assert codes == ["DFS113", "DFS103"]


def test_the_library_ends_at_its_folder(library: Path) -> None:
    write(library.parent / "parts.dfs")
    found = refused(Path("a.dfs"), "std:../parts.dfs")
    assert "outside the shipped library" in found.message
    refused(Path("a.dfs"), "std:/etc/hostname")


def test_a_missing_file_of_the_library_lists_it(library: Path) -> None:
    found = refused(Path("a.dfs"), "std:zzz/qqq.dfs")
    assert found.helps == ("the library has std:llama/more.dfs, std:llama/parts.dfs",)


def test_a_misspelt_file_of_the_library_is_guessed(library: Path) -> None:
    found = refused(Path("a.dfs"), "std:lama/parts.dfs")
    assert found.helps == ("did you mean 'std:llama/parts.dfs'?",)


def test_messages_show_both_files_in_every_form(project: Path) -> None:
    write(project / "lib" / "parts.dfs", GROUP.replace("on side", "on sid"))
    found = use(Path("a.dfs"), "lib/parts.dfs")
    full, concise, data = (render(found, form) for form in ("full", "concise", "json"))
    for place in ("--> lib/parts.dfs:3:18", "::: a.dfs:6:9", "used here"):
        assert place in full
    assert concise.startswith("lib/parts.dfs:3:18: error[DFS102]")
    assert "(used at a.dfs:6:9)" in concise
    assert '"file": "lib/parts.dfs"' in data
    assert '"file": "a.dfs"' in data


def test_a_file_of_the_library_is_read_by_its_name_there(library: Path) -> None:
    text = USE.format(file="parts.dfs").replace("attn, mlp", "attn\n            mlp")
    write(library / "llama" / "halves.dfs", text)
    name = "std:llama/halves.dfs"
    file = read_schedule(name).unwrap()
    assert str(file.schedules[0].span).startswith(f"{name}:3:")
    assert pipeline.stable_name(name) == name
    known = pipeline.declared(name)
    assert known is not None
    assert known.imports == {"std:llama/parts.dfs"}
    # Wherever it is installed: the folder is in no name.
    assert str(library) not in render(read_schedule(f"{name}x").diagnostics)


def test_a_file_that_the_library_has_not(library: Path) -> None:
    (found,) = read_schedule("std:llama/part.dfs").diagnostics
    assert found.message == "std:llama/part.dfs cannot be read: there is no such file"
    assert found.helps == ("did you mean 'std:llama/parts.dfs'?",)
    (found,) = read_schedule("std:llama").diagnostics
    assert found.code == "DFS113"
    (found,) = read_schedule("std:../../outside.dfs").diagnostics
    assert "outside the shipped library" in found.message


def test_imports_of_the_library_keep_their_names(library: Path) -> None:
    write(Path("deep/a.dfs"), 'dfs 1\nfrom "std:llama/parts.dfs" import layer\n')
    known = pipeline.declared("deep/a.dfs")
    assert known is not None
    assert known.imports == {"std:llama/parts.dfs"}
