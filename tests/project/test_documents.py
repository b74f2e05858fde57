import re
from pathlib import Path

import pytest

from dynaflow_dsl import __version__
from dynaflow_dsl.cli.main import COMMANDS
from tests.project.commands import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_checks_run_by_the_command_that_the_readme_names() -> None:
    (command,) = [line for line in read(".ci/run").splitlines() if "make" in line]
    assert command == "make test"
    assert re.search(r"^make test\b", read("README.md"), re.MULTILINE)


def test_readme_lists_every_command() -> None:
    for name in COMMANDS:
        assert f"| `dfsc {name} " in read("README.md")


def test_changelog_has_the_version() -> None:
    assert f"## [{__version__}]" in read("CHANGELOG.md")


def test_layout_names_every_folder_of_the_package() -> None:
    layout = read("docs/layout.md")
    folders = [
        folder.name
        for folder in (ROOT / "dynaflow_dsl").iterdir()
        if folder.is_dir() and any(folder.glob("*.py"))
    ]
    assert folders
    assert [name for name in folders if f"{name}/" not in layout] == []


def test_decisions_are_numbered_without_gaps() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(record.name[:4]) for record in records]
    assert numbers == list(range(1, len(records) + 1))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_lead_to_files(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    missing = [
        target
        for target in targets
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert missing == []
