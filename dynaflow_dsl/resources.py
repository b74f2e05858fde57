"""Where the files are that ship beside the code."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

Folder: TypeAlias = Literal["codegen_templates", "grammars", "schedules"]

PACKAGE = Path(__file__).parent


def folder(name: Folder) -> Path:
    """The folder of this name: in the installed package, else in the checkout.

    Wheels hold these folders inside the package; an editable install finds them beside
    it. Raises FileNotFoundError when neither exists, which means a broken install.
    """
    for parent in (PACKAGE, PACKAGE.parent):
        if (parent / name).is_dir():
            return parent / name
    raise FileNotFoundError(f"{name}/ is missing beside {PACKAGE.name}: install again")
