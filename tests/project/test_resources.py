from pathlib import Path

import pytest

from dynaflow_dsl import resources
from tests.project.commands import ROOT


def test_folder_is_found_in_the_checkout() -> None:
    assert resources.folder("grammars") == ROOT / "grammars"


def test_folder_of_the_package_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    (tmp_path / "grammars").mkdir()
    (package / "grammars").mkdir(parents=True)
    monkeypatch.setattr(resources, "PACKAGE", package)
    assert resources.folder("grammars") == package / "grammars"


def test_missing_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "PACKAGE", tmp_path / "package")
    with pytest.raises(FileNotFoundError, match="grammars/ is missing"):
        resources.folder("grammars")
