import sys

from tests.project.commands import SCRIPTS, passes


def test_imports_keep_to_the_layers() -> None:
    passes(SCRIPTS / "lint-imports", "--no-cache")


def test_ruff_finds_nothing() -> None:
    passes(sys.executable, "-m", "ruff", "check", ".")


def test_files_are_formatted() -> None:
    passes(sys.executable, "-m", "ruff", "format", "--check", ".")


def test_types_are_right() -> None:
    passes(sys.executable, "-m", "mypy")
