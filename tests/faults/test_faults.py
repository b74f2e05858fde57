"""Every fault of the catalogue is found, as its folder says; nothing else is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from unittest.mock import patch

import pytest

from dynaflow_dsl.diagnostics import Severity, render
from dynaflow_dsl.operations import effects, plugins
from tests.faults.cases import VALID, WRONG, read
from tests.project.commands import ROOT

PLUGIN = EntryPoint("engine", "tests.faults.engine:OPERATIONS", plugins.GROUP)


def forget() -> None:
    for cached in (plugins._values, effects.effects_of, effects.hidden_memory):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    """The plug-in is installed while a case is checked."""
    forget()
    with patch("importlib.metadata.entry_points", lambda group: [PLUGIN]):
        yield
    forget()


def name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


@pytest.mark.parametrize("folder", WRONG, ids=name)
def test_the_fault_is_found(folder: Path, update: bool) -> None:
    found = read(folder).findings()
    text = render(found)
    expected = folder / "expected.txt"
    if update:
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")
    assert any(each.severity is not Severity.INFO for each in found)
    for each in found:
        assert each.primary is not None
        assert len(each.helps) <= 5


@pytest.mark.parametrize("folder", VALID, ids=name)
def test_its_neighbour_is_not(folder: Path) -> None:
    assert render(read(folder).findings()) == ""


def test_the_document_names_the_reports() -> None:
    document = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    words = " ".join(document.split())
    reports = {read(folder).about.get("report") for folder in WRONG} - {None}
    assert [report for report in reports if report not in words] == []


def test_the_catalogue_is_complete() -> None:
    cases = [read(folder) for folder in WRONG]
    assert len(cases) >= 80
    assert len(VALID) >= 25
    assert sum("report" in case.about for case in cases) >= 15
    assert {case.kind for case in cases} == set(range(1, 9))
    assert {read(folder).kind for folder in VALID} == set(range(1, 9))
    causes: Counter[tuple[str, str]] = Counter()
    for case in cases:
        text = (case.folder / "expected.txt").read_text(encoding="utf-8")
        code = re.findall(r"\[(DFS\d{3})\]", text)[0]
        assert case.folder.parent.name == f"kind_{case.kind}"
        causes[code, case.cause] += 1
    assert max(causes.values()) <= 3, causes.most_common(3)
