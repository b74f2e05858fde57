import ast
import sys

from tests.project.commands import ROOT, SCRIPTS, passes


def test_imports_keep_to_the_layers() -> None:
    passes(SCRIPTS / "lint-imports", "--no-cache")


def test_ruff_finds_nothing() -> None:
    passes(sys.executable, "-m", "ruff", "check", ".")


def test_files_are_formatted() -> None:
    passes(sys.executable, "-m", "ruff", "format", "--check", ".")


def test_types_are_right() -> None:
    passes(sys.executable, "-m", "mypy")


PACKAGE = ROOT / "dynaflow_dsl"


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [each for each in folders if not (each / "__init__.py").exists()] == []


def test_the_package_uses_nothing_that_is_for_tests() -> None:
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            used = {name.partition(".")[0] for name in names}
            assert not used & {"unittest", "pytest"}, path
