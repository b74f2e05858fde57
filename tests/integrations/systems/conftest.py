"""Everything here needs its system: `make test-systems` installs them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        for mark in item.iter_markers("system"):
            (package,) = mark.args
            if find_spec(package) is None:
                reason = f"needs {package}: make test-systems"
                item.add_marker(pytest.mark.skip(reason=reason))
