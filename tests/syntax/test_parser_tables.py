from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dynaflow_dsl.resources import folder
from dynaflow_dsl.syntax.parser import _tables_file, make_parser

GRAMMAR = (folder("grammars") / "dfs.lark").read_text(encoding="utf-8")
TEXT = "dfs 1\nschedule s:\n    stream side\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_tables_are_kept_and_read_back(cache: Path) -> None:
    tables = _tables_file(GRAMMAR)
    assert tables is not None
    made = make_parser(GRAMMAR, tables).parse(TEXT)
    assert tables.is_file()
    assert make_parser(GRAMMAR, tables).parse(TEXT) == made


def test_damaged_tables_are_made_again(cache: Path) -> None:
    tables = _tables_file(GRAMMAR)
    assert tables is not None
    make_parser(GRAMMAR, tables)
    whole = tables.read_bytes()
    tables.write_bytes(whole[: len(whole) // 2])
    assert make_parser(GRAMMAR, tables).parse(TEXT).data == "start"


def test_the_name_depends_on_the_grammar(cache: Path) -> None:
    assert _tables_file(GRAMMAR) != _tables_file(GRAMMAR + "\n")


def test_the_folder_is_closed_to_others(cache: Path) -> None:
    tables = _tables_file(GRAMMAR)
    assert tables is not None
    assert stat.S_IMODE(tables.parent.stat().st_mode) == 0o700


def test_a_folder_that_others_can_write_is_not_used(cache: Path) -> None:
    place = cache / "dynaflow-dsl"
    place.mkdir()
    place.chmod(0o777)
    assert _tables_file(GRAMMAR) is None


def test_without_a_usable_folder_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    assert _tables_file(GRAMMAR) is None
    assert make_parser(GRAMMAR, None).parse(TEXT).data == "start"
