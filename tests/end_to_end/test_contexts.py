"""Operators that read a context of the caller, as those of serving engines do."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch

from dynaflow_dsl.cli.main import run
from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.trace import load_target
from tests.operations.test_plugins import installed, publish
from tests.verification.mutations import import_module

__all__ = ["installed"]

PLUGIN = """
from dynaflow_dsl.operations.rows import OperationRows

PLACES = OperationRows("engine_context::add_places", arguments=(0,), results=(0,))
"""

TARGET = """
import torch
from torch import nn

from dynaflow_dsl.trace import Entry, TraceSpec
from tests.end_to_end.context_engine import add_places, piece


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.up = nn.Linear(4, 4)

    def forward(self, x):
        return x + add_places(self.up(self.norm(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def target() -> TraceSpec:
    torch.manual_seed(0)
    return TraceSpec(
        model=Model().eval(),
        entries={"run": Entry(lambda sizes: (torch.randn(sizes["batch"], 4),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 16)},
        context=CONTEXT,
    )
"""

SCHEDULE = """dfs 1

model "context_target.py:target"

schedule engine:
    stream side
    split batch into 2 as half
    each layer in .layers.*:
        part norm on side = .norm
        part places = rest
        stagger half by 1:
            norm
            places
"""


@pytest.fixture
def folder(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (installed / "context_plugin.py").write_text(PLUGIN)
    publish(installed, engine="context_plugin:PLACES")
    monkeypatch.chdir(installed)
    (installed / "engine.dfs").write_text(SCHEDULE)
    write(installed, "piece")
    return installed


def write(folder: Path, context: str) -> None:
    (folder / "context_target.py").write_text(TARGET.replace("CONTEXT", context))


VERIFY = ["verify", "engine.dfs", "--text-only", "--batch", "1", "--batch", "5"]


def test_each_step_of_a_piece_runs_in_its_context(folder: Path) -> None:
    assert run(["compile", "engine.dfs"]) == 0
    text = (folder / "executors" / "engine.py").read_text()
    assert "needs_context = True" in text
    assert "with side, self.context(half_0):" in text
    assert "with main, self.context(half_1):" in text
    # What takes whole tensors, and a step that is not cut, enter none.
    assert text.count("self.context(") == text.count("# attn") + 8
    step, sequential = text.split("def sequential")
    assert "self.context" in step
    assert "self.context" not in sequential
    assert run(VERIFY) == 0


def test_a_context_of_other_rows_is_found(folder: Path) -> None:
    assert run(["compile", "engine.dfs"]) == 0
    write(folder, "lambda rows: piece(slice(0, rows.stop - rows.start))")
    assert run(VERIFY) == 1


def test_pieces_give_what_the_whole_step_gives(folder: Path) -> None:
    assert run(["compile", "engine.dfs"]) == 0
    spec = load_target("context_target.py:target", {}, None).unwrap()
    module = import_module(folder / "executors" / "engine.py")
    given: list[slice] = []

    def context(rows: slice) -> AbstractContextManager[None]:
        given.append(rows)
        return spec.context(rows)

    step = module.load(spec.model, compile=False, context=context)
    x = torch.randn(5, 4)
    torch.testing.assert_close(step(x), spec.model(x))
    assert {(rows.start, rows.stop) for rows in given} == {(0, 3), (3, 5)}
    given.clear()
    # One row cannot be cut.
    torch.testing.assert_close(step(x[:1]), spec.model(x[:1]))
    assert not given
    wrong = module.load(spec.model, compile=False, context=lambda rows: nullcontext())
    assert not torch.allclose(wrong(x), spec.model(x))


@pytest.mark.parametrize("context", [None, 3])
def test_it_has_to_be_given(folder: Path, context: object) -> None:
    assert run(["compile", "engine.dfs"]) == 0
    spec = load_target("context_target.py:target", {}, None).unwrap()
    module = import_module(folder / "executors" / "engine.py")
    with pytest.raises(LoadError) as caught:
        module.load(spec.model, context=context)
    given = "" if context is None else ", and a int was given"
    assert str(caught.value) == (
        f"DFS811: pieces of engine run in a context that the caller makes{given}: "
        "`load(..., context=make)`, where `make(rows)` returns the context manager for "
        "the rows of a piece."
    )


def test_no_graph_can_hold_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SCHEDULE.replace("    each", "    capture batch at [4]\n    each")
    (folder / "engine.dfs").write_text(text)
    assert run(["compile", "engine.dfs"]) == 1
    said = capsys.readouterr().err
    assert (
        "error[DFS321]: no CUDA graph can hold pieces that run in a context of the "
        "caller" in said
    )


def test_without_a_context_nothing_is_entered(folder: Path) -> None:
    write(folder, "None")
    assert run(["compile", "engine.dfs"]) == 0
    text = (folder / "executors" / "engine.py").read_text()
    assert "self.context" not in text
    assert "needs_context" not in text


def test_a_snapshot_says_so(folder: Path) -> None:
    assert run(["trace", "engine.dfs"]) == 0
    snapshot = folder / "engine.graph.json"
    assert '"context": true' in snapshot.read_text()
    assert run(["trace", "engine.dfs", "--check"]) == 0
    write(folder, "None")
    assert run(["trace", "engine.dfs", "--check"]) == 1
