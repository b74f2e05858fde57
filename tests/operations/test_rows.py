"""How a package says how its operators treat rows, and what becomes of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run
from dynaflow_dsl.operations.rows import (
    DeclarationError,
    OperationRows,
    declared_rows,
    rows_of,
)
from tests.bind.graphs import SPLIT, bound, fault, graph
from tests.operations.test_plugins import installed, publish

__all__ = ["installed"]

PLUGIN = """
from dynaflow_dsl.operations.rows import OperationRows

SCALE = OperationRows("engine_rows::scale", arguments=(0, None), results=(0,))
STORE = OperationRows("engine_rows.store.default", arguments=(0, 0))
AGAIN = OperationRows("engine_rows.scale", arguments=(1, None), results=(1,))
ALL = (SCALE, STORE, "of another class")
"""
PARTS = "a = .x\nb = .y"


def model(call: str) -> str:
    return f"""
        input h0 other fixed:fixed
        weight w
        a0 = {call} @ layers.0.x
        h1 = relu(a0) @ layers.0.y
        return h1
    """


@pytest.fixture
def engine(installed: Path) -> Path:
    (installed / "engine_plugin.py").write_text(PLUGIN)
    return installed


def test_without_a_declaration_an_operator_is_refused(engine: Path) -> None:
    text = model("engine_rows.scale.default(h0, fixed)")
    refused = fault(PARTS, graph(text), split=SPLIT)
    assert "no row rule for engine_rows.scale.default" in refused.message


def test_rows_of_an_operator(engine: Path) -> None:
    publish(engine, engine="engine_plugin:ALL")
    assert set(declared_rows()) == {"engine_rows.scale", "engine_rows.store.default"}
    scale = rows_of("engine_rows.scale.Tensor")
    assert scale is not None
    assert (scale.arguments, scale.results) == ((0, None), (0,))
    assert rows_of("engine_rows.store.default") is not None
    assert rows_of("engine_rows.store.out") is None
    assert rows_of("aten.relu.default") is None


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("engine_rows.scale.default(fixed, fixed)", None),
        ("engine_rows.scale.default(h0, fixed)", ""),
        (
            "engine_rows.scale.default(h0, other)",
            "argument 1 of engine_rows.scale.default is declared to be the same for "
            "all rows",
        ),
        (
            "engine_rows.store.default(h0, fixed)",
            "argument 1 of engine_rows.store.default is not split along axis 0, as is "
            "declared",
        ),
        (
            "engine_rows.store.default(h0, other)",
            "engine_rows.store.default has 1 results, and its declaration 0",
        ),
    ],
)
def test_operands_have_to_be_as_declared(
    engine: Path, call: str, reason: str | None
) -> None:
    publish(engine, engine="engine_plugin:ALL")
    text = model(call)
    if reason is None:
        # Nothing differs between pieces: there is nothing to declare.
        text = text.replace("a0 =", "a0:fixed =").replace(
            "relu(a0)", "mul.Tensor(h0, a0)"
        )
    if not reason:
        # A part of its own in which nothing has rows would be refused (DFS607).
        parts = PARTS if reason == "" else "a = .x + .y"
        binding = bound(parts, graph(text), split=SPLIT)
        declared = [stated.operations for stated in binding.stated]
        assert declared == ([] if reason is None else [{"a0"}])
        return
    found = fault(PARTS, graph(text), split=SPLIT)
    assert found.code == "DFS601"
    assert reason in found.message


def test_two_plugins_contradict_each_other(engine: Path) -> None:
    publish(engine, a="engine_plugin:SCALE", b="engine_plugin:AGAIN")
    with pytest.raises(DeclarationError, match="is declared twice"):
        declared_rows()
    text = model("engine_rows.scale.default(h0, fixed)")
    found = fault(PARTS, graph(text), split=SPLIT)
    assert (found.code, found.message) == ("DFS117", "plug-ins contradict each other")
    assert bound(PARTS, graph(text)).stated == ()


def test_a_plugin_that_cannot_be_meant(engine: Path) -> None:
    publish(engine, a="engine_plugin:SCALE")
    wrong = PLUGIN.replace("(0, None)", "(None, None)")
    (engine / "engine_plugin.py").write_text(wrong)
    found = fault(PARTS, graph(model("relu(h0)")), split=SPLIT)
    assert found.code == "DFS117"
    assert found.notes == (
        "engine_plugin:SCALE: ValueError: no argument of 'engine_rows.scale' has rows",
    )


@pytest.mark.parametrize(
    ("operator", "arguments", "reason"),
    [
        ("scale", (0,), "'scale' is no operator: write 'namespace.name'"),
        ("engine.a.b.c", (0,), "is no operator"),
        ("aten.cumsum", (0,), "the rows of 'aten.cumsum' are not for a plug-in"),
        ("engine.scale", (None, None), "no argument of 'engine.scale' has rows"),
        ("engine.scale", (), "no argument of 'engine.scale' has rows"),
        ("engine.scale", ("batch",), "arguments of 'engine.scale': 'batch' is no axis"),
        ("engine.scale", (True,), "arguments of 'engine.scale': True is no axis"),
        ("engine.scale", [0], "arguments of 'engine.scale' must be a tuple of axes"),
    ],
)
def test_declarations_that_cannot_be_meant(
    operator: str, arguments: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason.replace(".", r"\.")):
        OperationRows(operator, arguments)


TARGET = """
import torch
from torch import nn

from dynaflow_dsl.trace import Entry, TraceSpec


@torch.library.custom_op("engine_rows::scale", mutates_args=())
def scale(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return BODY


@scale.register_fake
def _(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return torch.tanh(torch.ops.engine_rows.scale(self.norm(x), self.weight))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def target() -> TraceSpec:
    return TraceSpec(
        model=Model().eval(),
        entries={"run": Entry(lambda sizes: (torch.randn(sizes["batch"], 4),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 64)},
    )
"""
SCHEDULE = """dfs 1

model "engine_target.py:target"

schedule scaled:
    stream side
    split batch into 2 as half
    each layer in .layers.*:
        part norm on side = .norm
        part scale = rest + (own in .)
        stagger half by 1:
            norm
            scale
"""


@pytest.mark.parametrize("body", ["x * weight", "x * weight - x.mean(0)"])
def test_a_declaration_is_tried_by_numbers(
    engine: Path,
    body: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(engine, engine="engine_plugin:ALL")
    monkeypatch.chdir(engine)
    (engine / "engine_target.py").write_text(TARGET.replace("BODY", body))
    (engine / "scaled.dfs").write_text(SCHEDULE)
    assert run(["compile", "scaled.dfs"]) == 0
    text = (engine / "executors" / "scaled.py").read_text()
    assert "A plug-in declares how engine_rows.scale.default treats rows" in text
    capsys.readouterr()
    right = body == "x * weight"
    assert run(["verify", "scaled.dfs", "--text-only", "--batch", "5"]) == int(
        not right
    )
    said = capsys.readouterr().out
    who = "the plug-in of engine_rows.scale.default states that rows are apart"
    assert said.count(who) == 2
    assert ("differs when cut in pieces" in said) is not right
    sys.modules.pop("engine_target", None)
