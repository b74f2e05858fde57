from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynaflow_dsl.operations import plugins
from dynaflow_dsl.operations.aliases import OperationAlias, aliases
from dynaflow_dsl.operations.plugins import PluginError, registered
from tests.bind.graphs import bound, graph, held

PLUGIN = """
from dynaflow_dsl.operations.aliases import OperationAlias

OPERATIONS = (
    OperationAlias("all_reduce", ("engine.all_reduce",)),
    OperationAlias("dispatch", ("engine.dispatch*",)),
    "of another class",
)
ONE = OperationAlias("combine", ("engine.combine",))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages that is searched first, as if they were installed."""
    (tmp_path / "engine_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    plugins._values.cache_clear()
    yield tmp_path
    plugins._values.cache_clear()
    sys.modules.pop("engine_plugin", None)


def publish(folder: Path, **places: str) -> None:
    info = folder / "engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: engine\nVersion: 1.0\n"
    )
    lines = [f"{name} = {place}" for name, place in places.items()]
    text = "\n".join([f"[{plugins.GROUP}]", *lines, ""])
    (info / "entry_points.txt").write_text(text)


def test_a_plugin_adds_kinds_and_spellings(installed: Path) -> None:
    publish(installed, b="engine_plugin:OPERATIONS", a="engine_plugin:ONE")
    assert [each.name for each in registered(OperationAlias)] == [
        "combine",
        "all_reduce",
        "dispatch",
    ]
    assert registered(str) == ("of another class",)
    known = aliases()
    assert "_c10d_functional.all_reduce" in known["all_reduce"]
    assert "engine.all_reduce" in known["all_reduce"]
    assert "engine.all_reduce" in known["collective"]
    assert known["dispatch"] == ("engine.dispatch*",)


def test_a_schedule_selects_by_a_kind_of_a_plugin(installed: Path) -> None:
    publish(installed, engine="engine_plugin:OPERATIONS")
    model = graph(
        """
        input x
        a = engine.dispatch_tokens.default(x) @ layers.0.mlp
        b = relu(a) @ layers.0.mlp
        return b
        """
    )
    binding = bound("send = dispatch in .mlp\nrest_of_it = rest", model)
    assert held(binding, "send") == ["a"]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("gone_plugin:X", "ModuleNotFoundError: No module named 'gone_plugin'"),
        ("engine_plugin:GONE", "AttributeError"),
    ],
)
def test_a_plugin_that_cannot_be_imported(
    installed: Path, place: str, reason: str
) -> None:
    publish(installed, engine=place)
    with pytest.raises(PluginError, match=reason) as raised:
        aliases()
    assert (raised.value.name, raised.value.place) == ("engine", place)


def test_without_plugins_there_are_the_kinds_of_torch() -> None:
    assert {"all_reduce", "attention", "matmul", "norm"} <= aliases().keys()
