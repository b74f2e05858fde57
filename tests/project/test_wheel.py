import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.project.commands import ROOT, run

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(
        *PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, "."
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("dynaflow_dsl-*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_holds_the_package_and_its_folders(names: set[str]) -> None:
    assert {
        "dynaflow_dsl/py.typed",
        "dynaflow_dsl/pipeline.py",
        "dynaflow_dsl/cli/main.py",
        "dynaflow_dsl/grammars/dfs.lark",
        "dynaflow_dsl/schedules/llama/halves.dfs",
    } <= names
    templates = {n for n in names if n.startswith("dynaflow_dsl/codegen_templates/")}
    assert any(name.endswith(".jinja") for name in templates)


def test_wheel_holds_every_file_of_the_folders(names: set[str]) -> None:
    for folder in ("grammars", "schedules", "codegen_templates"):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                assert f"dynaflow_dsl/{file.relative_to(ROOT).as_posix()}" in names


def test_wheel_holds_nothing_else(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"dynaflow_dsl"}


def test_metadata_names_licence_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {n.split("/")[0] for n in archive.namelist() if ".dist-info/" in n}
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        commands = archive.read(f"{info}/entry_points.txt").decode()
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "dfsc = dynaflow_dsl.cli.main:main" in commands


def test_installed_wheel_works_outside_the_checkout(
    wheel: Path, tmp_path: Path
) -> None:
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = run(*PIP, "install", "--quiet", "--no-deps", "--target", installed, wheel)
    assert done.returncode == 0, done.stderr
    schedule = installed / "dynaflow_dsl" / "schedules" / "llama" / "halves.dfs"
    done = subprocess.run(
        [sys.executable, "-m", "dynaflow_dsl", "compile", schedule, "-M", "layers=2"],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    module = elsewhere / "executors" / "llama_halves.py"
    assert done.stdout.strip() == "executors/llama_halves.py"
    assert module.is_file()
    assert module.with_suffix(".map.json").is_file()
