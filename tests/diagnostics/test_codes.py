from __future__ import annotations

import re
from pathlib import Path

import dynaflow_dsl
from dynaflow_dsl.diagnostics import explanation
from dynaflow_dsl.diagnostics.codes import PAGES, explanations
from dynaflow_dsl.resources import folder

PACKAGE = Path(dynaflow_dsl.__file__).parent


def test_every_code_in_the_package_has_a_page() -> None:
    files = [*PACKAGE.rglob("*.py"), *folder("grammars").rglob("*.mistake")]
    used = {
        code
        for file in files
        for code in re.findall(r"\bDFS[0-9]{3}\b", file.read_text(encoding="utf-8"))
    }
    assert used
    assert used - explanations().keys() == set()


def test_pages_are_whole() -> None:
    for code, page in explanations().items():
        assert re.fullmatch(r"DFS[0-9]{3}", code)
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", page.name)
        assert page.summary.endswith(".")
        assert page.page.strip()


def test_names_and_codes_are_unique_and_in_their_file() -> None:
    names = [page.name for page in explanations().values()]
    assert len(names) == len(set(names))
    for file in PAGES.glob("*.md"):
        codes = re.findall(r"^## (DFS[0-9]{3}) ", file.read_text("utf-8"), re.MULTILINE)
        assert codes == sorted(set(codes))
        assert {code[3] for code in codes} == {file.name[0]}


def test_explanation() -> None:
    page = explanation("dfs016")
    assert page is not None
    assert page.text.startswith("# DFS016 equals-to-compare\n\nA condition compares")
    assert explanation("DFS999") is None
    assert explanation("") is None
