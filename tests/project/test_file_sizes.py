from collections.abc import Callable
from pathlib import Path

from tests.project.commands import ROOT

FOLDERS = ("dynaflow_dsl", "tests", "benchmarks")
LIMIT = 500
LOOK = 300


def lengths() -> dict[Path, int]:
    files = (file for name in FOLDERS for file in (ROOT / name).rglob("*.py"))
    return {
        file.relative_to(ROOT): file.read_text(encoding="utf-8").count("\n")
        for file in files
    }


def test_no_file_is_too_long(record_property: Callable[[str, object], None]) -> None:
    found = lengths()
    assert found, "no Python files found"
    long = {str(file): n for file, n in sorted(found.items()) if n > LOOK}
    record_property(f"files over {LOOK} lines", long)
    print(f"files over {LOOK} lines, to look at: {long}")
    assert not {file: n for file, n in long.items() if n > LIMIT}
